"""Writes the Parquet files of this folder with pyarrow and DuckDB."""
import decimal, sys
import duckdb, numpy, pyarrow as pa, pyarrow.parquet as pq
D = decimal.Decimal
out = sys.argv[1]
table = pa.table({
    "id": pa.array(["a", "b"]),
    "big": pa.array([2**64 - 1, 1], pa.uint64()),
    "u32": pa.array([2**32 - 1, 1], pa.uint32()),
    "half": pa.array(numpy.array([1.5, -0.1], dtype=numpy.float16)),
    "price": pa.array([D("12.50"), D("-0.01")], pa.decimal128(9, 2)),
    "small": pa.array([D("1.5"), D("-2.5")], pa.decimal128(3, 1)),
    "long": pa.array([D("123456789012345678901234567890.12"), D("-1.00")], pa.decimal128(38, 2)),
    "whole": pa.array([D("5"), D("-7")], pa.decimal256(60, 0)),
    "words": pa.array([[("k", "v"), ("n", None)], []], pa.map_(pa.string(), pa.string())),
    "numbers": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "at": pa.array([1234567, 0], pa.timestamp("us")),
    "clock": pa.array([3723000, 0], pa.time32("ms")),
})
pq.write_table(table, out + "/pyarrow.parquet")
pq.write_table(table.select(["id", "price", "small"]), out + "/pyarrow-int.parquet", store_decimal_as_integer=True)
duckdb.sql(f"""copy (select * from (values
  ('a', 18446744073709551615::ubigint, 12.50::decimal(9,2), 123456789012345678901234567890.12::decimal(38,2), 1.5::decimal(3,1), map {{'k': 'v', 'n': null}}, 1::hugeint, interval 1 day),
  ('b', 1::ubigint, -0.01::decimal(9,2), -1::decimal(38,2), null, null, -1::hugeint, null)) t(id, big, price, long, small, words, huge, span)) to '{out}/duckdb.parquet' (format parquet)""")
