"""What lives with Django REST framework."""
