"""Say in one line what is lacking, before an import deep inside fails."""

from checkpoint.extras import lack_of

# Spark's mapInArrow asks for pandas without using it.
_NEEDED = ("pyspark", "pyarrow", "pandas", "xxhash", "fsspec")

_lacking = [lack for lack in map(lack_of, _NEEDED) if lack]
if _lacking:
    raise ImportError(f"objectspace.spark takes {'; '.join(_lacking)}: pip install 'objectspace[spark]'")
