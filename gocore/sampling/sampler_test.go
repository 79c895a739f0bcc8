package sampling

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"

	"axlm/mlxc"
)

func TestMain(m *testing.M) {
	path := os.Getenv("AXLM_MLXC")
	if path == "" {
		fmt.Fprintln(os.Stderr, "set AXLM_MLXC (and AXLM_LIBMLX) to the libraries, as `make test` does")
		os.Exit(1)
	}
	if err := mlxc.Load(os.Getenv("AXLM_LIBMLX"), path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func scope(t *testing.T) *mlxc.Scope {
	t.Helper()
	runtime.LockOSThread() // streams belong to threads
	stream, err := mlxc.NewStream(mlxc.Device{Type: mlxc.CPU})
	if err != nil {
		t.Fatal(err)
	}
	s := mlxc.NewScope(stream)
	t.Cleanup(s.Close)
	return s
}

// A large vocabulary in bfloat16 is drawn from as exactly as in float32, and
// as MLX's own categorical draws for the same key.
func TestDrawsFromALargeBFloat16Vocabulary(t *testing.T) {
	s := scope(t)
	const vocab = 50_000
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i) * 12.9898)) // flat: the sum has many small parts
	}
	x := s.AsType(s.FromFloat32s(logits, 1, vocab), mlxc.BFloat16)
	sampler := &Sampler{Temp: 1}
	state := Key{0, 11}
	for range 20 {
		next, use := state.Split()
		draw, after := sampler.Draw(state)
		if after != next {
			t.Fatalf("the state after a draw is %v, want %v", after, next)
		}
		got := s.Keep(sampler.Choose(s, x, []Draw{draw}))
		want := s.Keep(s.RandomCategorical(x, -1, s.FromUint32s(use[:], 2)))
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		a, err := got.Uint32s()
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.Uint32s()
		if err != nil {
			t.Fatal(err)
		}
		// Two orders of adding up 50,000 numbers may end one token apart.
		if d := int(a[0]) - int(b[0]); d < -1 || d > 1 {
			t.Errorf("key %v draws token %d, MLX draws %d", use, a[0], b[0])
		}
		got.Free()
		want.Free()
		state = next
	}
}
