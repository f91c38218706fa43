"""`python -m example_project.demo`: each event takes effect once, before your eyes."""
