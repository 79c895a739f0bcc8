package sampling

import (
	"math"
	"testing"

	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

func TestMain(m *testing.M) { mlxctest.Main(m) }

// A large vocabulary in bfloat16 is drawn from exactly: at each draw the token
// is where a sum in float64 says.
func TestDrawsFromALargeBFloat16Vocabulary(t *testing.T) {
	s := mlxctest.NewScope(t)
	const vocab = 50_000
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i) * 12.9898)) // flat: the sum has many small parts
	}
	x := s.AsType(s.FromFloat32s(logits, 1, vocab), mlxc.BFloat16)
	rounded, err := x.AsFloat32s()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, v := range rounded {
		total += math.Exp(float64(v))
	}
	sampler := &Sampler{Temp: 1}
	for seed := range uint32(20) {
		draw, _ := sampler.Draw(Key{0, seed})
		want, below := 0, 0.0
		for i, v := range rounded {
			if below += math.Exp(float64(v)); below > float64(draw.Uniform)*total {
				want = i
				break
			}
		}
		got, err := sampler.Choose(s, x, []Draw{draw}).Uint32s()
		if err != nil {
			t.Fatal(err)
		}
		// Adding up 50,000 float32 in some order may end a few tokens away.
		if d := int(got[0]) - want; d < -3 || d > 3 {
			t.Errorf("seed %d draws token %d, want %d", seed, got[0], want)
		}
	}
}
