package mlxc

import (
	"math"
	"testing"
)

func normed(x []float32, w []float32, width int, eps float64) []float64 {
	out := make([]float64, len(x))
	for row := 0; row < len(x); row += width {
		square := 0.0
		for i := range width {
			square += float64(x[row+i]) * float64(x[row+i]) / float64(width)
		}
		for i := range width {
			out[row+i] = float64(x[row+i]) / math.Sqrt(square+eps)
			if w != nil {
				out[row+i] *= float64(w[i])
			}
		}
	}
	return out
}

// Epsilons so large that a wrong one cannot hide, and different ones in one test, so that a stale one cannot either.
func TestNorms(t *testing.T) {
	const width = 8
	x, w := noise(2*width, 1), noise(width, 2)
	expect(t, []expectation{
		{"rms_norm", func(s *Scope) Array {
			return s.RMSNorm(s.FromFloat32s(x, 2, width), s.FromFloat32s(w), 0.7)
		}, []int{2, width}, Float32, normed(x, w, width, 0.7)},
		{"rms_norm without a weight", func(s *Scope) Array {
			return s.RMSNorm(s.FromFloat32s(x, 2, width), Array{}, 0.03)
		}, []int{2, width}, Float32, normed(x, nil, width, 0.03)},
	})
}

// rotated is RoPE over [1, 1, length, width] for the given positions and inverse frequencies.
func rotated(x []float32, width, dims int, traditional bool, positions, inverse []float64) []float64 {
	out := float64s(x...)
	for row, position := range positions {
		for i := range dims / 2 {
			a, b := i, i+dims/2
			if traditional {
				a, b = 2*i, 2*i+1
			}
			a, b = row*width+a, row*width+b
			sin, cos := math.Sincos(position * inverse[i])
			out[a] = float64(x[a])*cos - float64(x[b])*sin
			out[b] = float64(x[a])*sin + float64(x[b])*cos
		}
	}
	return out
}

func TestRoPE(t *testing.T) {
	const length, width = 3, 8
	x := noise(length*width, 1)
	frequencies := func(base float64, dims int) (inverse []float64) {
		for i := range dims / 2 {
			inverse = append(inverse, math.Pow(base, -2*float64(i)/float64(dims)))
		}
		return inverse
	}
	positions := func(offset, scale float64) (p []float64) {
		for i := range length {
			p = append(p, (offset+float64(i))*scale)
		}
		return p
	}
	shape := []int{1, 1, length, width}
	in := func(s *Scope) Array { return s.FromFloat32s(x, shape...) }
	periods := []float32{1, 2.5, 10, 40}
	inversePeriods := []float64{1, 1 / 2.5, 0.1, 0.025}
	expect(t, []expectation{
		{"rope", func(s *Scope) Array { return s.RoPE(in(s), width, false, 100, 0.5, 7, Array{}) }, shape, Float32,
			rotated(x, width, width, false, positions(7, 0.5), frequencies(100, width))},
		{"rope, traditional, of a part", func(s *Scope) Array { return s.RoPE(in(s), 4, true, 50, 1, 0, Array{}) },
			shape, Float32, rotated(x, width, 4, true, positions(0, 1), frequencies(50, 4))},
		{"rope by frequencies", func(s *Scope) Array {
			return s.RoPE(in(s), width, false, 0, 0.25, 2, s.FromFloat32s(periods))
		}, shape, Float32, rotated(x, width, width, false, positions(2, 0.25), inversePeriods)},
		{"rope_dynamic", func(s *Scope) Array {
			return s.RoPEDynamic(in(s), width, false, 100, 2, s.ScalarInt(3, Int32), Array{})
		}, shape, Float32, rotated(x, width, width, false, positions(3, 2), frequencies(100, width))},
	})
}

// attended is attention of [heads, queries, width] on [heads/group, keys, width].
func attended(q, k, v []float32, heads, group, queries, keys, width int, scale float64, mask func(i, j int) float64,
	sink func(h int) float64) []float64 {
	out := make([]float64, heads*queries*width)
	for h := range heads {
		for i := range queries {
			weights := make([]float64, keys)
			total := 0.0
			if sink != nil {
				total = math.Exp(sink(h))
			}
			for j := range keys {
				dot := 0.0
				for d := range width {
					dot += float64(q[(h*queries+i)*width+d]) * float64(k[(h/group*keys+j)*width+d])
				}
				weights[j] = math.Exp(dot*scale + mask(i, j))
				total += weights[j]
			}
			for j := range keys {
				for d := range width {
					out[(h*queries+i)*width+d] += weights[j] / total * float64(v[(h/group*keys+j)*width+d])
				}
			}
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	const heads, group, queries, keys, width = 4, 2, 3, 5, 8
	q, k, v := noise(heads*queries*width, 1), noise(heads/group*keys*width, 2), noise(heads/group*keys*width, 3)
	additive, sinks := noise(queries*keys, 4), noise(heads, 5)
	want := func(scale float64, mask func(i, j int) float64, sink func(int) float64) []float64 {
		return attended(q, k, v, heads, group, queries, keys, width, scale, mask, sink)
	}
	call := func(scale float32, mode string, mask, sinks func(s *Scope) Array) func(s *Scope) Array {
		return func(s *Scope) Array {
			var m, k0 Array
			if mask != nil {
				m = mask(s)
			}
			if sinks != nil {
				k0 = sinks(s)
			}
			return s.SDPA(s.FromFloat32s(q, 1, heads, queries, width), s.FromFloat32s(k, 1, heads/group, keys, width),
				s.FromFloat32s(v, 1, heads/group, keys, width), scale, mode, m, k0)
		}
	}
	open := func(int, int) float64 { return 0 }
	shape := []int{1, heads, queries, width}
	expect(t, []expectation{
		{"no mask", call(0.6, "", nil, nil), shape, Float32, want(0.6, open, nil)},
		{"causal", call(1.7, "causal", nil, nil), shape, Float32, want(1.7, func(i, j int) float64 {
			if j > i+keys-queries {
				return math.Inf(-1)
			}
			return 0
		}, nil)},
		{"additive mask", call(0.3, "array", func(s *Scope) Array { return s.FromFloat32s(additive, queries, keys) }, nil),
			shape, Float32, want(0.3, func(i, j int) float64 { return float64(additive[i*keys+j]) }, nil)},
		{"sinks", call(0.9, "", nil, func(s *Scope) Array { return s.FromFloat32s(sinks) }), shape, Float32,
			want(0.9, open, func(h int) float64 { return float64(sinks[h]) })},
	})
}
