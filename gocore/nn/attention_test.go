package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// attendCase is random input of attention over the first n rows of a buffer.
type attendCase struct {
	batch, heads, kvHeads, length, size, n, room int
	q, k, v, mask                                []float32 // q is [B, L, heads, d]; mask may be nil
	scale                                        float64
	ours                                         bool // our kernel's business, where there is one
}

func newAttendCase(ours bool, batch, heads, kvHeads, length, size, n int, masked bool) *attendCase {
	random := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	c := &attendCase{batch: batch, heads: heads, kvHeads: kvHeads, length: length, size: size, n: n, room: n + 3, ours: ours}
	c.scale = 1 / math.Sqrt(float64(size))
	c.q = noise(random, 2, batch*length*heads*size)
	c.k, c.v = noise(random, 1, batch*kvHeads*c.room*size), noise(random, 1, batch*kvHeads*c.room*size)
	if masked {
		for row := range length {
			for key := range n {
				hidden := float32(math.Inf(-1))
				if key == 0 || key <= n-length+row && (row+key)%7 != 3 {
					hidden = 0
				}
				c.mask = append(c.mask, hidden)
			}
		}
	}
	return c
}

// byDefinition is [B, L, heads·d] in float64.
func (c *attendCase) byDefinition() []float64 {
	out := make([]float64, 0, len(c.q))
	for b := range c.batch {
		for row := range c.length {
			for head := range c.heads {
				q := c.q[((b*c.length+row)*c.heads+head)*c.size:][:c.size]
				from := (b*c.kvHeads + head/(c.heads/c.kvHeads)) * c.room * c.size
				weights, total := make([]float64, c.n), 0.0
				for key := range weights {
					var score float64
					for i, x := range q {
						score += float64(x) * float64(c.k[from+key*c.size+i])
					}
					if score *= c.scale; c.mask != nil {
						score += float64(c.mask[row*c.n+key])
					}
					weights[key] = math.Exp(score)
					total += weights[key]
				}
				for i := range c.size {
					var sum float64
					for key, w := range weights {
						sum += w / total * float64(c.v[from+key*c.size+i])
					}
					out = append(out, sum)
				}
			}
		}
	}
	return out
}

func (c *attendCase) run(s *mlxc.Scope, a *Attender, dt mlxc.DType) mlxc.Array {
	typed := func(values []float32, dims ...int) mlxc.Array { return s.AsType(s.FromFloat32s(values, dims...), dt) }
	q := s.Transpose(typed(c.q, c.batch, c.length, c.heads, c.size), 0, 2, 1, 3)
	view := func(values []float32) mlxc.Array {
		return s.Slice(typed(values, c.batch, c.kvHeads, c.room, c.size), []int{0, 0, 0, 0}, []int{c.batch, c.kvHeads, c.n, c.size})
	}
	var m kvcache.Mask
	if c.mask != nil {
		m = kvcache.Mask{Mode: "array", Array: typed(c.mask, c.length, c.n)}
	}
	return a.Forward(s, q, kvcache.Rows{Keys: view(c.k), Values: view(c.v)}, float32(c.scale), m)
}

// Attention is its definition, with a kernel of ours and without, over views
// of buffers, for one query and several.
func TestAttender(t *testing.T) {
	cases := map[string]*attendCase{
		"one key":            newAttendCase(true, 1, 8, 1, 1, 256, 1, false),
		"one query":          newAttendCase(true, 1, 8, 1, 1, 256, 301, false),
		"wide heads":         newAttendCase(true, 1, 8, 1, 1, 512, 130, false),
		"several kv heads":   newAttendCase(true, 1, 16, 4, 1, 256, 77, false),
		"a batch":            newAttendCase(true, 2, 4, 2, 3, 256, 40, true),
		"verification":       newAttendCase(true, 1, 8, 1, 16, 256, 128, true),
		"most rows":          newAttendCase(true, 1, 4, 2, attendRows, 512, 64, true),
		"most keys":          newAttendCase(true, 1, 2, 1, 1, 256, attendKeys, false),
		"too many rows":      newAttendCase(false, 1, 4, 2, attendRows+1, 256, 64, true),
		"too many keys":      newAttendCase(false, 1, 2, 1, 1, 256, attendKeys+1, false),
		"heads that MLX has": newAttendCase(false, 1, 4, 2, 1, 128, 60, false),
		"odd heads":          newAttendCase(false, 1, 4, 2, 1, 200, 60, false),
	}
	for name, c := range cases {
		for dt, tolerance := range map[mlxc.DType]float64{mlxc.Float32: 2e-3, mlxc.Float16: 1e-2, mlxc.BFloat16: 5e-2} {
			t.Run(fmt.Sprintf("%s, %v", name, dt), func(t *testing.T) {
				s := newScope(t)
				st := &Store{scope: s}
				a := st.Attender(attendSize)
				t.Cleanup(st.Free)
				out := c.run(s, a, dt)
				if s.Err() != nil {
					t.Fatal(s.Err())
				}
				if got, want := fmt.Sprint(out.Shape()), fmt.Sprint([]int{c.batch, c.length, c.heads * c.size}); got != want {
					t.Fatalf("shape %s, want %s", got, want)
				}
				got := values(t, s, out)
				for i, want := range c.byDefinition() {
					if math.Abs(float64(got[i])-want) > tolerance {
						t.Fatalf("element %d: %v, want %v", i, got[i], want)
					}
				}
				if a.kernel != nil && c.ours != (len(a.kernel.launches) == 1) {
					t.Errorf("%d launches of our kernel, want it to run: %v", len(a.kernel.launches), c.ours)
				}
			})
		}
	}
}

// Heads as small as MLX's own kernels take need no other one, and no Attender
// at all attends like MLX.
func TestNoAttender(t *testing.T) {
	s := newScope(t)
	a := (&Store{scope: s}).Attender(fusedSize)
	if a != nil {
		t.Fatal("want none")
	}
	c := newAttendCase(false, 1, 4, 2, 2, 64, 9, true)
	got := values(t, s, c.run(s, a, mlxc.Float32))
	for i, want := range c.byDefinition() {
		if math.Abs(float64(got[i])-want) > 1e-3 {
			t.Fatalf("element %d: %v, want %v", i, got[i], want)
		}
	}
}
