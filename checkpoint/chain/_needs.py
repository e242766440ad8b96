"""Say in one line what is lacking, before an import deep inside fails."""

from checkpoint.extras import lack_of

_lacking = [lack for lack in map(lack_of, ("fsspec", "pyarrow", "numpy")) if lack]
if _lacking:
    raise ImportError(f"a space of shards takes {'; '.join(_lacking)}: pip install 'objectspace[arrow]'")
