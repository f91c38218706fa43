"""A small shop that receives webhooks: to look at, to try out and to be hammered by tests."""
