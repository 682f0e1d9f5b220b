"""The command line: parse, call, print. Nothing is computed here that Python cannot call elsewhere."""
