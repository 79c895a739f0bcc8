package mlxc

import "testing"

// product is a @ b of row-major matrices.
func product(a, b []float64, n, k, m int) []float64 {
	out := make([]float64, n*m)
	for i := range n {
		for j := range m {
			for l := range k {
				out[i*m+j] += a[i*k+l] * b[l*m+j]
			}
		}
	}
	return out
}

func transposed(a []float64, n, m int) []float64 {
	out := make([]float64, len(a))
	for i := range n {
		for j := range m {
			out[j*n+i] = a[i*m+j]
		}
	}
	return out
}

func TestMatrixProducts(t *testing.T) {
	a, b, c := noise(6, 1), noise(12, 2), noise(8, 3)
	ab := product(float64s(a...), float64s(b...), 2, 3, 4)
	mixed := make([]float64, len(ab))
	for i := range mixed {
		mixed[i] = 2*ab[i] - 0.5*float64(c[i])
	}
	stack := append(noise(12, 4), b...) // two 3×4 matrices, the second of them b
	expect(t, []expectation{
		{"matmul", func(s *Scope) Array { return s.Matmul(s.FromFloat32s(a, 2, 3), s.FromFloat32s(b, 3, 4)) },
			[]int{2, 4}, Float32, ab},
		{"addmm", func(s *Scope) Array {
			return s.AddMM(s.FromFloat32s(c, 2, 4), s.FromFloat32s(a, 2, 3), s.FromFloat32s(b, 3, 4), 2, -0.5)
		}, []int{2, 4}, Float32, mixed},
		{"gather_mm", func(s *Scope) Array {
			return s.GatherMM(s.FromFloat32s(a, 1, 2, 3), s.FromFloat32s(stack, 2, 3, 4), Array{},
				s.FromUint32s([]uint32{1}), true)
		}, []int{1, 2, 4}, Float32, ab},
	})
}

const (
	packRows, packWidth, packGroup = 4, 64, 32
)

// gridWeights lie exactly on a 4-bit grid that holds 0, a different one for each group.
func gridWeights(seed uint32) []float32 {
	w := make([]float32, packRows*packWidth)
	for i := range w {
		group := i / packGroup
		level := (i*7 + int(seed)) % 16
		w[i] = (float32(level)*0.25 - 1) * float32(group+1)
	}
	return w
}

// unpacked is what affine packing means: bits of a word, lowest first, times the group's scale plus its bias.
func unpacked(words []uint32, scales, biases []float64, bits int) []float64 {
	out := make([]float64, len(words)*32/bits)
	for i := range out {
		q := words[i*bits/32] >> (i * bits % 32) & (1<<bits - 1)
		group := i / packGroup
		out[i] = float64(q)*scales[group] + biases[group]
	}
	return out
}

func TestQuantization(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		w := gridWeights(0)
		parts := s.Quantize(s.FromFloat32s(w, packRows, packWidth), packGroup, 4, "affine")
		if s.Err() != nil || len(parts) != 3 {
			t.Fatalf("got %v, %v", parts, s.Err())
		}
		if err := Eval(parts...); err != nil {
			t.Fatal(err)
		}
		words, err := parts[0].Uint32s()
		if err != nil {
			t.Fatal(err)
		}
		sameValues(t, unpacked(words, values(t, s, parts[1]), values(t, s, parts[2]), 4), float64s(w...))

		back := s.Dequantize(parts[0], parts[1], parts[2], packGroup, 4, "affine", AnyDType)
		if back.DType() != Float32 {
			t.Errorf("dequantized to %v", back)
		}
		sameValues(t, values(t, s, back), float64s(w...))
		half := s.Dequantize(parts[0], parts[1], parts[2], packGroup, 4, "affine", BFloat16)
		if half.DType() != BFloat16 {
			t.Errorf("asked for bfloat16, got %v", half)
		}
		if got := values(t, s, half); got[0] != float64(w[0]) {
			t.Errorf("got %v, want %v", got[0], w[0])
		}
	})
}

func TestQuantizedProducts(t *testing.T) {
	x := noise(2*packWidth, 5)
	xt := noise(2*packRows, 6)
	w := [2][]float64{float64s(gridWeights(0)...), float64s(gridWeights(3)...)}
	packed := func(s *Scope) []Array {
		both := append(gridWeights(0), gridWeights(3)...)
		return s.Quantize(s.FromFloat32s(both, 2, packRows, packWidth), packGroup, 4, "affine")
	}
	one := func(s *Scope) []Array {
		return s.Quantize(s.FromFloat32s(gridWeights(0), packRows, packWidth), packGroup, 4, "affine")
	}
	expect(t, []expectation{
		{"quantized_matmul", func(s *Scope) Array {
			p := one(s)
			return s.QuantizedMatmul(s.FromFloat32s(x, 2, packWidth), p[0], p[1], p[2], true, packGroup, 4, "affine")
		}, []int{2, packRows}, Float32,
			product(float64s(x...), transposed(w[0], packRows, packWidth), 2, packWidth, packRows)},
		{"quantized_matmul, not transposed", func(s *Scope) Array {
			p := one(s)
			return s.QuantizedMatmul(s.FromFloat32s(xt, 2, packRows), p[0], p[1], p[2], false, packGroup, 4, "affine")
		}, []int{2, packWidth}, Float32, product(float64s(xt...), w[0], 2, packRows, packWidth)},
		{"gather_qmm", func(s *Scope) Array { // thirteen arguments
			p := packed(s)
			return s.GatherQMM(s.FromFloat32s(x, 2, 1, packWidth), p[0], p[1], p[2], Array{},
				s.FromUint32s([]uint32{1, 0}), true, packGroup, 4, "affine", false)
		}, []int{2, 1, packRows}, Float32, append(
			product(float64s(x[:packWidth]...), transposed(w[1], packRows, packWidth), 1, packWidth, packRows),
			product(float64s(x[packWidth:]...), transposed(w[0], packRows, packWidth), 1, packWidth, packRows)...)},
	})
}

func TestQuantizationModes(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		// These values are exact in MXFP4 (E2M1 with a power of two for 32 of them).
		levels := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 6}
		w := append(append([]float32{}, levels...), levels...)
		parts := s.Quantize(s.FromFloat32s(w, 1, 32), 32, 4, "mxfp4")
		if s.Err() != nil || len(parts) != 2 {
			t.Fatalf("got %v, %v", parts, s.Err())
		}
		back := s.Dequantize(parts[0], parts[1], Array{}, 32, 4, "mxfp4", Float32)
		sameValues(t, values(t, s, back), float64s(w...))
		x := noise(32, 8)
		y := s.QuantizedMatmul(s.FromFloat32s(x, 1, 32), parts[0], parts[1], Array{}, true, 0, 0, "mxfp4")
		sameValues(t, values(t, s, y), product(float64s(x...), float64s(w...), 1, 32, 1))
	})
}

func TestConv1d(t *testing.T) {
	const length, channels, width = 6, 4, 3
	x, w := noise(length*channels, 1), noise(channels*width, 2)
	var depthwise, strided []float64
	for p := range length - width + 1 {
		for c := range channels {
			sum := 0.0
			for k := range width {
				sum += float64(x[(p+k)*channels+c]) * float64(w[c*width+k])
			}
			depthwise = append(depthwise, sum)
		}
	}
	// One output channel over all inputs, stride 2, one zero at either end.
	full := noise(width*channels, 3)
	for p := -1; p+width <= length+1; p += 2 {
		sum := 0.0
		for k := range width {
			for c := range channels {
				if at := p + k; at >= 0 && at < length {
					sum += float64(x[at*channels+c]) * float64(full[k*channels+c])
				}
			}
		}
		strided = append(strided, sum)
	}
	expect(t, []expectation{
		{"depthwise", func(s *Scope) Array {
			return s.Conv1d(s.FromFloat32s(x, 1, length, channels), s.FromFloat32s(w, channels, width, 1), 1, 0, 1, channels)
		}, []int{1, length - width + 1, channels}, Float32, depthwise},
		{"strided and padded", func(s *Scope) Array {
			return s.Conv1d(s.FromFloat32s(x, 1, length, channels), s.FromFloat32s(full, 1, width, channels), 2, 1, 1, 1)
		}, []int{1, len(strided), 1}, Float32, strided},
	})
}
