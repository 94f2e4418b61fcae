// torch has no hook for device names: all of them, of Python and TorchScript, go through one
// constructor of libc10.so, which other libraries call through a slot that the dynamic linker
// fills. A replacement is put into these slots, as the linker's own interposition would.
#include "cuda_name.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "device.h"

namespace accel {

namespace {

// Device::Device(const std::string&), complete object; any compiler's C++ ABI here is Itanium's.
constexpr const char* kConstructor =
    "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
using Constructor = void (*)(c10::Device*, const std::string&);

Constructor torchs_constructor = nullptr;

void construct(c10::Device* device, const std::string& name) {
  torchs_constructor(device, name);
  if (device->is_cuda()) {
    *device = c10::Device(kDeviceType, device->index());
  }
}

struct Slot {
  void** address;
  bool read_only; // in the part that the linker has protected after relocation
};

void store(const Slot& slot, void* value) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot.address) & -page_size);
  TORCH_CHECK(
      !slot.read_only || mprotect(page, page_size, PROT_READ | PROT_WRITE) == 0,
      "accel: cannot give accel the device name 'cuda': mprotect: ",
      std::strerror(errno));
  std::atomic_ref<void*>(*slot.address).store(value);
  if (slot.read_only) {
    mprotect(page, page_size, PROT_READ);
  }
}

// What a loaded library's dynamic section says of its relocations.
struct Relocations {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * tables[2] = {};
  size_t counts[2] = {};

  Relocations(const dl_phdr_info& library, const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      // glibc has made these addresses absolute, other linkers leave them relative.
      const auto value = entry->d_un.d_ptr;
      const auto address = value < library.dlpi_addr ? library.dlpi_addr + value : value;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          names = reinterpret_cast<const char*>(address);
          break;
        case DT_JMPREL:
          tables[0] = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          counts[0] = value / sizeof(ElfW(Rela));
          break;
        case DT_RELA:
          tables[1] = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELASZ:
          counts[1] = value / sizeof(ElfW(Rela));
          break;
        default:
          break;
      }
    }
  }
};

int find_slots(dl_phdr_info* library, size_t /*size*/, void* data) {
  auto& slots = *static_cast<std::vector<Slot>*>(data);
  const ElfW(Dyn)* dynamic = nullptr;
  uintptr_t protected_begin = 0;
  uintptr_t protected_end = 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& segment = library->dlpi_phdr[i];
    const auto begin = library->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    } else if (segment.p_type == PT_GNU_RELRO) {
      const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
      protected_begin = begin & -page_size;
      protected_end = (begin + segment.p_memsz) & -page_size;
    }
  }
  if (dynamic == nullptr) {
    return 0;
  }
  const Relocations found(*library, dynamic);
  if (found.symbols == nullptr || found.names == nullptr) {
    return 0;
  }
  for (int table = 0; table < 2; ++table) {
    for (size_t i = 0; found.tables[table] != nullptr && i < found.counts[table]; ++i) {
      const auto& relocation = found.tables[table][i];
      const auto symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol == 0 ||
          std::strcmp(found.names + found.symbols[symbol].st_name, kConstructor) != 0) {
        continue;
      }
      const auto address = library->dlpi_addr + relocation.r_offset;
      slots.push_back(
          {reinterpret_cast<void**>(address),
           address >= protected_begin && address < protected_end});
    }
  }
  return 0;
}

// Returns the number of slots.
size_t fill_slots(Constructor constructor) {
  std::vector<Slot> slots; // of what is loaded now: libraries come and go
  dl_iterate_phdr(&find_slots, &slots);
  for (const auto& slot : slots) {
    store(slot, reinterpret_cast<void*>(constructor));
  }
  return slots.size();
}

} // namespace

size_t redirect_cuda_name() {
  torchs_constructor = reinterpret_cast<Constructor>(dlsym(RTLD_DEFAULT, kConstructor));
  return torchs_constructor == nullptr ? 0 : fill_slots(&construct);
}

void restore_cuda_name() {
  if (torchs_constructor != nullptr) {
    fill_slots(torchs_constructor);
  }
}

} // namespace accel
