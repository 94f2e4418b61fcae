"""Objects of the compiler, loaded into this process."""


def test_an_object_loads_where_the_free_parts_of_the_address_space_are_small_and_far_apart(script):
    """Code and its constants do not fit into one hole: apart, the constants would be out of the code's reach."""
    done = script(
        """
        import ctypes
        from torch_accel.triton.codegen import llvm

        text = "define double @f(double %x) {\\n %y = fadd double %x, 0x400921FB54442D18\\n ret double %y\\n}\\n"
        target = llvm.target()
        compiled = llvm.compile_text(text, target)
        llvm.Code(compiled.object)  # whatever is made at first use is made now

        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        GIB, PAGE = 1 << 30, 4096
        reserve = lambda size: libc.mmap(None, size, 0, 0x4022, -1, 0)  # PROT_NONE, private, anonymous, no reserve
        region = reserve(40 * GIB)
        for pages in (64, 32, 16, 8, 4, 2, 1):  # first the holes above the region
            while (hole := reserve(pages * PAGE)) > region:
                pass
            libc.munmap(hole, pages * PAGE)
        for place in range(13):
            libc.munmap(region + place * 3 * GIB, PAGE)

        code = llvm.Code(compiled.object)
        print(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("f"))(1.0))
        """
    )
    assert done.stdout == "4.141592653589793\n"
