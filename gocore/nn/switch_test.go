package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"axlm/gocore/weights"
	"axlm/mlxc"
)

const (
	testExperts  = 5
	testPerToken = 2
	testWidth    = 64
	testInner    = 32
)

// testGLU makes random experts, plain or packed, and what they do one by one.
func testGLU(s *mlxc.Scope, random *rand.Rand, quant *weights.Quant) (*SwitchGLU, func(x mlxc.Array, expert int) mlxc.Array) {
	each := map[string][]mlxc.Array{} // transposed weight of each expert
	layer := func(name string, in, out int) *SwitchLinear {
		w := s.FromFloat32s(noise(random, 0.2, testExperts*in*out), testExperts, out, in)
		m := Matrix{Weight: s.SwapAxes(w, -1, -2)}
		if quant != nil {
			packed := s.Quantize(w, quant.GroupSize, quant.Bits, quant.Mode)
			m = Matrix{Weight: packed[0], Scales: packed[1], Biases: packed[2], Quant: quant}
			w = s.Dequantize(m.Weight, m.Scales, m.Biases, quant.GroupSize, quant.Bits, quant.Mode, mlxc.Float32)
		}
		bias := noise(random, 0.3, testExperts*out)
		m.Bias = s.FromFloat32s(bias, testExperts, out)
		for e := range testExperts {
			one := s.Reshape(s.Slice(w, []int{e, 0, 0}, []int{e + 1, out, in}), out, in)
			each[name] = append(each[name], s.Transpose(one, 1, 0))
			each[name+" bias"] = append(each[name+" bias"], s.FromFloat32s(bias[e*out:(e+1)*out], out))
		}
		return &SwitchLinear{Matrix: m}
	}
	glu := &SwitchGLU{
		Gate: layer("gate", testWidth, testInner), Up: layer("up", testWidth, testInner), Down: layer("down", testInner, testWidth),
		Act: SwiGLU,
	}
	one := func(x mlxc.Array, e int) mlxc.Array {
		apply := func(name string, x mlxc.Array) mlxc.Array {
			return s.Add(s.Matmul(x, each[name][e]), each[name+" bias"][e])
		}
		return apply("down", SwiGLU(s, apply("gate", x), apply("up", x)))
	}
	return glu, one
}

// Each row gets what its own experts make of it, few rows or many, which are
// sorted by expert.
func TestSwitchGLU(t *testing.T) {
	for _, quant := range []*weights.Quant{nil, {GroupSize: 32, Bits: 4, Mode: "affine"}} {
		for _, length := range []int{1, 7, sortFrom/testPerToken - 1, sortFrom / testPerToken, 50} {
			t.Run(fmt.Sprintf("%v, %d rows", quant, length), func(t *testing.T) {
				s := newScope(t)
				random := rand.New(rand.NewPCG(1, uint64(length)))
				glu, one := testGLU(s, random, quant)
				data := noise(random, 1, length*testWidth)
				chosen := make([]uint32, 0, length*testPerToken)
				for range length {
					for _, e := range random.Perm(testExperts)[:testPerToken] {
						chosen = append(chosen, uint32(e))
					}
				}
				got := glu.Forward(s, s.FromFloat32s(data, 1, length, testWidth), s.FromUint32s(chosen, 1, length, testPerToken))
				if s.Err() != nil {
					t.Fatal(s.Err())
				}
				if want := []int{1, length, testPerToken, testWidth}; !slices.Equal(got.Shape(), want) {
					t.Fatalf("experts give %v, want shape %v", got, want)
				}
				var want []float64
				for i, e := range chosen {
					row := i / testPerToken
					x := s.FromFloat32s(data[row*testWidth:(row+1)*testWidth], 1, testWidth)
					for _, v := range values(t, s, one(x, int(e))) {
						want = append(want, float64(v))
					}
				}
				near(t, "experts", values(t, s, got), want, 1e-5)
			})
		}
	}
}

// The router takes the experts of the greatest weights, and with Normalize the
// weights of those sum to 1.
func TestRouter(t *testing.T) {
	s := newScope(t)
	logits := []float32{1, 4, 2, 3, 0, 7, 7.5, -1, 5, 6}
	eye := make([]float32, testExperts*testExperts)
	for i := range testExperts {
		eye[i*testExperts+i] = 1
	}
	router := Router{Gate: &Linear{Matrix: Matrix{Weight: s.FromFloat32s(eye, testExperts, testExperts)}}, PerToken: testPerToken}
	for _, normalize := range []bool{false, true} {
		router.Normalize = normalize
		experts, scores := router.Forward(s, s.FromFloat32s(logits, 1, 2, testExperts))
		all := values(t, s, s.Softmax(s.FromFloat32s(logits, 2, testExperts), -1, true))
		picked := values(t, s, experts)
		var want []float64
		for row, best := range [][]float32{{1, 3}, {0, 1}} {
			got := picked[row*testPerToken : (row+1)*testPerToken]
			if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, best) {
				t.Errorf("row %d goes to experts %v, want %v", row, got, best)
			}
			var total float64
			for _, e := range got {
				total += float64(all[row*testExperts+int(e)])
			}
			for _, e := range got {
				w := float64(all[row*testExperts+int(e)])
				if normalize {
					w /= total
				}
				want = append(want, w)
			}
		}
		near(t, "scores", values(t, s, scores), want, 1e-6)
	}
}
