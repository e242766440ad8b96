"""Say in one line what is missing, before an import deep inside fails."""

from importlib.util import find_spec

_missing = [name for name in ("fsspec", "pyarrow", "numpy") if find_spec(name) is None]
if _missing:
    raise ImportError(f"a space of shards takes {', '.join(_missing)}: pip install 'objectspace[arrow]'")
