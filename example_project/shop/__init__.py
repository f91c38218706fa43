"""The shop: it books what it is told of."""
