package mlxc

import "fmt"

// DType is the type of an array's elements, in mlx-c's numbering.
type DType int32

// The element types. AnyDType stands for "MLX decides" where an operation allows it.
const (
	AnyDType DType = iota - 1
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	Float16
	Float32
	Float64
	BFloat16
	Complex64
)

type dtypeInfo struct {
	name string
	size int
}

func (d DType) info() (dtypeInfo, bool) {
	switch d {
	case Bool:
		return dtypeInfo{"bool", 1}, true
	case Uint8:
		return dtypeInfo{"uint8", 1}, true
	case Uint16:
		return dtypeInfo{"uint16", 2}, true
	case Uint32:
		return dtypeInfo{"uint32", 4}, true
	case Uint64:
		return dtypeInfo{"uint64", 8}, true
	case Int8:
		return dtypeInfo{"int8", 1}, true
	case Int16:
		return dtypeInfo{"int16", 2}, true
	case Int32:
		return dtypeInfo{"int32", 4}, true
	case Int64:
		return dtypeInfo{"int64", 8}, true
	case Float16:
		return dtypeInfo{"float16", 2}, true
	case Float32:
		return dtypeInfo{"float32", 4}, true
	case Float64:
		return dtypeInfo{"float64", 8}, true
	case BFloat16:
		return dtypeInfo{"bfloat16", 2}, true
	case Complex64:
		return dtypeInfo{"complex64", 8}, true
	}
	return dtypeInfo{}, false
}

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	info, _ := d.info()
	return info.size
}

// String returns the name that MLX and safetensors-based configurations use, such as "bfloat16".
func (d DType) String() string {
	if info, ok := d.info(); ok {
		return info.name
	}
	return fmt.Sprintf("DType(%d)", int32(d))
}

// word is the type as a C argument. mlx-c does not check types, so those it does not know are refused here.
func (d DType) word() (uintptr, error) {
	if _, ok := d.info(); !ok {
		return 0, fmt.Errorf("%v is no element type", d)
	}
	return uintptr(d), nil
}

// IsFloat tells whether the type is one of the real floating-point types.
func (d DType) IsFloat() bool {
	switch d {
	case Float16, Float32, Float64, BFloat16:
		return true
	}
	return false
}

// ParseDType finds a type by its name.
func ParseDType(name string) (DType, error) {
	for d := Bool; d <= Complex64; d++ {
		if d.String() == name {
			return d, nil
		}
	}
	return AnyDType, fmt.Errorf("unknown dtype %q", name)
}
