package mlxc

import "math"

// floatBits and floatWord are floats as a call frame's register words.
func floatBits(v float64) uintptr { return uintptr(math.Float64bits(v)) }
func floatWord(v float32) uintptr { return uintptr(math.Float32bits(v)) }

// bfloat16Bits rounds to the nearest bfloat16, ties to even.
func bfloat16Bits(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40 // keep it a NaN when its payload is cut off
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func bfloat16Value(bits uint16) float32 {
	return math.Float32frombits(uint32(bits) << 16)
}

// float16Bits rounds to the nearest IEEE half, ties to even.
func float16Bits(v float32) uint16 {
	const (
		smallestNormal = 1.0 / (1 << 14)
		subnormalUnit  = 1.0 / (1 << 24)
		overflow       = 65520 // halfway between the largest half and the next power of two
	)
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	abs := math.Float64frombits(math.Float64bits(float64(v)) &^ (1 << 63))
	switch {
	case v != v:
		return sign | 0x7e00
	case abs >= overflow:
		return sign | 0x7c00
	case abs < smallestNormal:
		// A subnormal counts units; rounding up to the smallest normal carries into the exponent by itself.
		return sign | uint16(math.RoundToEven(abs/subnormalUnit))
	}
	magnitude := bits & 0x7fffffff
	magnitude += 0x0fff + magnitude>>13&1
	return sign | uint16(magnitude>>13-(127-15)<<10)
}

func float16Value(bits uint16) float32 {
	sign := float32(1)
	if bits&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch exponent {
	case 0:
		return sign * float32(math.Ldexp(fraction, -24))
	case 0x1f:
		if fraction != 0 {
			return float32(math.NaN())
		}
		return sign * float32(math.Inf(1))
	}
	return sign * float32(math.Ldexp(1024+fraction, exponent-25))
}
