"""OTLP protobuf to rows: the wire check, the walkers of each signal, and the arrays that they fill."""
