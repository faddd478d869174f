"""Commands of the command line, a module for each thing that they are about; cli.py names them all."""
