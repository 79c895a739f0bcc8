package mlxc

import (
	"fmt"
	"unsafe"
)

// atEnd is what iterators return when there is nothing left.
const atEnd = 2

// LoadSafetensors opens a safetensors file: its arrays, which read the file when they are evaluated, and its
// metadata. The stream should be one of the CPU, which does the reading. The caller frees the arrays.
func LoadSafetensors(path string, stream Stream) (map[string]Array, map[string]string, error) {
	lib, err := loaded()
	if err != nil {
		return nil, nil, err
	}
	file := cString(path)
	var arrays, metadata uintptr
	err = lib.check(&lib.c.mlx_load_safetensors, uintptr(unsafe.Pointer(&arrays)), uintptr(unsafe.Pointer(&metadata)),
		uintptr(unsafe.Pointer(&file[0])), stream.ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer lib.call(&lib.c.mlx_map_string_to_array_free, arrays)
	defer lib.call(&lib.c.mlx_map_string_to_string_free, metadata)
	values, err := lib.arrayMap(arrays)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	texts, err := lib.stringMap(metadata)
	if err != nil {
		for _, a := range values {
			a.Free()
		}
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return values, texts, nil
}

func (l *library) arrayMap(m uintptr) (map[string]Array, error) {
	position, of := l.callPair(&l.c.mlx_map_string_to_array_iterator_new, m)
	if position == 0 {
		return nil, l.failure("iterate")
	}
	defer l.call(&l.c.mlx_map_string_to_array_iterator_free, position, of)
	values := map[string]Array{}
	for {
		var key uintptr
		var value Array
		rc := l.call(&l.c.mlx_map_string_to_array_iterator_next,
			uintptr(unsafe.Pointer(&key)), uintptr(unsafe.Pointer(&value)), position, of)
		switch int32(rc) {
		case 0:
			values[goString(key)] = value
		case atEnd:
			return values, nil
		default:
			for _, a := range values {
				a.Free()
			}
			return nil, l.failure("iterate")
		}
	}
}

func (l *library) stringMap(m uintptr) (map[string]string, error) {
	position, of := l.callPair(&l.c.mlx_map_string_to_string_iterator_new, m)
	if position == 0 {
		return nil, l.failure("iterate")
	}
	defer l.call(&l.c.mlx_map_string_to_string_iterator_free, position, of)
	values := map[string]string{}
	for {
		var key, value uintptr
		rc := l.call(&l.c.mlx_map_string_to_string_iterator_next,
			uintptr(unsafe.Pointer(&key)), uintptr(unsafe.Pointer(&value)), position, of)
		switch int32(rc) {
		case 0:
			values[goString(key)] = goString(value)
		case atEnd:
			return values, nil
		default:
			return nil, l.failure("iterate")
		}
	}
}

// SaveSafetensors evaluates arrays and writes them to a file, with metadata if there is any.
func SaveSafetensors(path string, arrays map[string]Array, metadata map[string]string) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	if err := lib.saveSafetensors(path, arrays, metadata); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (l *library) saveSafetensors(path string, arrays map[string]Array, metadata map[string]string) error {
	values, err := l.create(&l.c.mlx_map_string_to_array_new)
	if err != nil {
		return err
	}
	defer l.call(&l.c.mlx_map_string_to_array_free, values)
	for name, a := range arrays {
		key := cString(name)
		err := l.check(&l.c.mlx_map_string_to_array_insert, values, uintptr(unsafe.Pointer(&key[0])), a.ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	texts, err := l.create(&l.c.mlx_map_string_to_string_new)
	if err != nil {
		return err
	}
	defer l.call(&l.c.mlx_map_string_to_string_free, texts)
	for name, value := range metadata {
		key, text := cString(name), cString(value)
		err := l.check(&l.c.mlx_map_string_to_string_insert, texts,
			uintptr(unsafe.Pointer(&key[0])), uintptr(unsafe.Pointer(&text[0])))
		if err != nil {
			return fmt.Errorf("metadata %s: %w", name, err)
		}
	}
	file := cString(path)
	return l.check(&l.c.mlx_save_safetensors, uintptr(unsafe.Pointer(&file[0])), values, texts)
}
