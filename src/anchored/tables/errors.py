"""What its owner can mend about a table, told in one line."""


class TableError(ValueError):
    """Something about a table or a model's file that its owner can mend; the message says where it is and how."""
