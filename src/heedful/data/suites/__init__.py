"""GLUE, SuperGLUE and Russian SuperGLUE: their tasks as data, readers and submissions."""
