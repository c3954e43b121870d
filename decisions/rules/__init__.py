"""The rules of a decision. Pure: no Django, no input or output."""
