package mlxc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is one opened mlx-c and what belongs to it.
type library struct {
	libmlx, path string
	handle       uintptr
	c            symbols
	direct       bool // the call frame's layout was verified
	messages     messages
	asked        sync.Pool // of *question
	traced       tracedFunctions
}

// current is the loaded library: C code cannot be unloaded safely, so there is one for the whole process.
var current struct {
	sync.Mutex
	lib atomic.Pointer[library]
}

// Load opens libmlx (when not empty, with global symbols, so that libmlxc finds it wherever it was installed) and the
// mlx-c library libmlxc, checks that every function needed is there and installs the error handler. Loading the same
// paths again does nothing; others are an error.
func Load(libmlx, libmlxc string) error {
	current.Lock()
	defer current.Unlock()
	if lib := current.lib.Load(); lib != nil {
		if lib.libmlx == libmlx && lib.path == libmlxc {
			return nil
		}
		return fmt.Errorf("load %s: %s is already loaded", libmlxc, lib.path)
	}
	lib, err := open(libmlx, libmlxc)
	if err != nil {
		return err
	}
	current.lib.Store(lib)
	return nil
}

func open(libmlx, libmlxc string) (*library, error) {
	if libmlxc == "" {
		return nil, errors.New("load mlx-c: no path given")
	}
	if libmlx != "" {
		if _, err := purego.Dlopen(libmlx, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return nil, fmt.Errorf("load %s: %w", libmlx, err)
		}
	}
	handle, err := purego.Dlopen(libmlxc, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", libmlxc, err)
	}
	lib := &library{libmlx: libmlx, path: libmlxc, handle: handle}
	lookup := func(name string) uintptr {
		addr, _ := purego.Dlsym(handle, name)
		return addr
	}
	if err := lib.c.resolve(lookup); err != nil {
		return nil, fmt.Errorf("load %s: %w", libmlxc, err)
	}
	if err := lib.messages.install(lib); err != nil {
		return nil, fmt.Errorf("load %s: %w", libmlxc, err)
	}
	lib.traced.install(lib)
	lib.direct = frameLayoutHolds() && frameCallWorks()
	return lib, nil
}

// Loaded tells whether Load has succeeded.
func Loaded() bool { return current.lib.Load() != nil }

// LibraryPath returns the path of the loaded mlx-c library, or "".
func LibraryPath() string {
	if lib := current.lib.Load(); lib != nil {
		return lib.path
	}
	return ""
}

// Has tells whether the loaded library exports a symbol.
func Has(symbol string) bool {
	lib := current.lib.Load()
	if lib == nil {
		return false
	}
	addr, err := purego.Dlsym(lib.handle, symbol)
	return err == nil && addr != 0
}

// Version returns the version of MLX itself.
func Version() string {
	lib := current.lib.Load()
	if lib == nil {
		return ""
	}
	var text uintptr
	if lib.check(&lib.c.mlx_version, uintptr(unsafe.Pointer(&text))) != nil {
		return ""
	}
	defer lib.call(&lib.c.mlx_string_free, text)
	return goString(lib.call(&lib.c.mlx_string_data, text))
}

// errNotLoaded is what everything that needs the library reports before Load.
func errNotLoaded() error { return errors.New("mlxc: no library is loaded") }

func loaded() (*library, error) {
	if lib := current.lib.Load(); lib != nil {
		return lib, nil
	}
	return nil, errNotLoaded()
}
