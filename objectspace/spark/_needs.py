"""Say in one line what is missing, before an import deep inside fails."""

from importlib.util import find_spec

# Spark's mapInArrow asks for pandas without using it.
_NEEDED = ("pyspark", "pyarrow", "pandas", "xxhash", "fsspec")

_missing = [name for name in _NEEDED if find_spec(name) is None]
if _missing:
    raise ImportError(f"objectspace.spark needs {', '.join(_missing)}: pip install 'objectspace[spark]'")
