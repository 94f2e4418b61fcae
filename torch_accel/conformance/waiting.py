"""The operators that may make the host wait, each with its reason."""

_SIZE = "the size of the result depends on the data"
_VALUE = "gives a value to the host"
_COPY = "copies to or from pageable host memory"

#: operator without overload -> reason
WAITING: dict[str, str] = {
    "_local_scalar_dense": _VALUE,
    "equal": _VALUE,
    "is_nonzero": _VALUE,
    "allclose": _VALUE,
    "_linalg_check_errors": "raises if a factorisation failed, which only its values tell",
    "bincount": _SIZE,
    "index": "the number of true elements of a mask decides the size",
    "hardtanh": "integers whose bounds need a check fall back",
    "histc": "without a range it takes one from the data, and falls back",
    "nonzero": _SIZE,
    "masked_select": _SIZE,
    "unique_consecutive": _SIZE,
    "unique_dim": _SIZE,
    "_unique": _SIZE,
    "_unique2": _SIZE,
    "unique_dim_consecutive": _SIZE,
    "_copy_from": _COPY,
    "_copy_from_and_resize": _COPY,
    "_to_copy": _COPY,
    "copy_": _COPY,
}
