package mlxc

import (
	"math"
	"testing"
)

func TestHalfPrecision(t *testing.T) {
	for bits := range 1 << 16 {
		h := uint16(bits)
		if v := float16Value(h); v == v {
			if got := float16Bits(v); got != h {
				t.Fatalf("float16 %#04x became %v and then %#04x", h, v, got)
			}
		}
		if v := bfloat16Value(h); v == v {
			if got := bfloat16Bits(v); got != h {
				t.Fatalf("bfloat16 %#04x became %v and then %#04x", h, v, got)
			}
		}
	}
	nan := float32(math.NaN())
	if v := float16Value(float16Bits(nan)); v == v {
		t.Error("float16 lost a NaN")
	}
	if v := bfloat16Value(bfloat16Bits(math.Float32frombits(0x7f800001))); v == v {
		t.Error("bfloat16 lost a NaN whose payload is in its low bits")
	}
}

// MLX's own conversions are the reference for rounding.
func TestHalfRoundingAgreesWithMLX(t *testing.T) {
	s := newScope(t)
	var in []float32
	for _, v := range noise(2000, 9) {
		for _, scale := range []float32{1, 1e-5, 1e-7, 70000, 1e38} {
			in = append(in, v*scale)
		}
	}
	in = append(in, 65504, 65519, 65520, 6.1e-5, 6.097e-5, 5.96e-8, 2.98e-8, 2.99e-8, 0,
		1+1.0/(1<<11), 1+3.0/(1<<11), 1+1.0/(1<<8), 1+3.0/(1<<8)) // halfway between two halves
	for dt, convert := range map[DType]func(float32) uint16{Float16: float16Bits, BFloat16: bfloat16Bits} {
		got := values(t, s, s.View(s.AsType(s.FromFloat32s(in), dt), Uint16))
		for i, v := range in {
			if want := convert(v); uint16(got[i]) != want {
				t.Errorf("%v of %v: ours %#04x, MLX's %#04x", dt, v, want, uint16(got[i]))
			}
		}
	}
}
