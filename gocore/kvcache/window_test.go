package kvcache

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"axlm/mlxc"
)

const (
	testHeads = 2
	testWidth = 4
)

// history is what a state should hold, all of it: rows of [heads·width].
type history struct {
	keys, values [][]float32
}

// attend is attention by the definition, in float64.
func (h *history) attend(query []float32, position, size int) []float64 {
	out := make([]float64, testHeads*testWidth)
	for head := range testHeads {
		from := head * testWidth
		var total float64
		sums := make([]float64, testWidth)
		for p := max(0, position-size+1); p <= position; p++ {
			var score float64
			for i := range testWidth {
				score += float64(query[from+i]) * float64(h.keys[p][from+i])
			}
			weight := math.Exp(score)
			total += weight
			for i := range testWidth {
				sums[i] += weight * float64(h.values[p][from+i])
			}
		}
		for i := range testWidth {
			out[from+i] = sums[i] / total
		}
	}
	return out
}

// rig drives a state and the history side by side.
type rig struct {
	t       *testing.T
	s       *mlxc.Scope
	rng     *rand.Rand
	state   Attention
	size    int // of the window
	history history
}

func (r *rig) rows(n int) [][]float32 {
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, testHeads*testWidth)
		for j := range rows[i] {
			rows[i][j] = float32(r.rng.NormFloat64())
		}
	}
	return rows
}

// array is rows as [1, heads, n, width].
func (r *rig) array(rows [][]float32) mlxc.Array {
	var flat []float32
	for _, row := range rows {
		flat = append(flat, row...)
	}
	return r.s.Transpose(r.s.FromFloat32s(flat, 1, len(rows), testHeads, testWidth), 0, 2, 1, 3)
}

// forward appends n rows and compares what their queries see.
func (r *rig) forward(n int) {
	r.t.Helper()
	offset := len(r.history.keys)
	if r.state.Offset() != offset {
		r.t.Fatalf("offset %d, want %d", r.state.Offset(), offset)
	}
	queries, keys, values := r.rows(n), r.rows(n), r.rows(n)
	r.history.keys = append(r.history.keys, keys...)
	r.history.values = append(r.history.values, values...)
	r.s.Reset()
	mask := r.state.Mask(r.s, n, mlxc.Float32)
	seen := r.state.Update(r.s, r.array(keys), r.array(values))
	out := r.s.SDPA(r.array(queries), seen.Keys, seen.Values, 1, mask.Mode, mask.Array, mlxc.Array{})
	out = r.s.Keep(r.s.Transpose(out, 0, 2, 1, 3))
	if r.s.Err() != nil {
		r.t.Fatalf("%d rows at %d: %v", n, offset, r.s.Err())
	}
	r.s.Close()
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		r.t.Fatal(err)
	}
	got, err := out.Float32s()
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range n {
		for j, want := range r.history.attend(queries[i], offset+i, r.size) {
			if d := math.Abs(float64(got[i*testHeads*testWidth+j]) - want); !(d < 1e-4) {
				r.t.Fatalf("%d rows at %d: row %d feature %d is off by %g", n, offset, i, j, d)
			}
		}
	}
}

func (r *rig) rollback(mark, keep int) {
	r.t.Helper()
	if err := r.state.Rollback(r.s, keep); err != nil {
		r.t.Fatalf("keeping %d of %d after %d: %v", keep, len(r.history.keys)-mark, mark, err)
	}
	r.history.keys, r.history.values = r.history.keys[:mark+keep], r.history.values[:mark+keep]
}

// Prompts, single tokens, and drafts of every depth of which any part is
// rejected, then more of it, see what a full history shows through the window.
func TestWindowAgainstFullHistory(t *testing.T) {
	for _, size := range []int{1, 2, 5, 16, 100, 300} {
		for _, pad := range []bool{false, true} {
			t.Run(fmt.Sprintf("size %d pad %v", size, pad), func(t *testing.T) {
				w := NewWindow(size, pad)
				defer w.Free()
				r := &rig{t: t, s: newScope(t), rng: rand.New(rand.NewSource(int64(size))), state: w, size: size}
				for range 150 {
					switch r.rng.Intn(8) {
					case 0: // a prompt, at times longer than the window
						r.forward(1 + r.rng.Intn(2*size))
					case 1, 2, 3, 4:
						for range r.rng.Intn(size + 40) {
							w.Checkpoint()
							r.forward(1)
						}
					default:
						w.Checkpoint()
						mark, n := len(r.history.keys), 1+r.rng.Intn(MaxReplay)
						r.forward(n)
						keep := r.rng.Intn(n + 1)
						r.rollback(mark, keep)
						if keep > 0 && r.rng.Intn(2) == 0 {
							r.rollback(mark, r.rng.Intn(keep))
						}
					}
					if len(r.history.keys) > 3000 {
						break
					}
				}
			})
		}
	}
}

// A step that is queued ahead and dropped leaves nothing behind, whatever comes
// before and after it.
func TestWindowDropsStepsAhead(t *testing.T) {
	for _, size := range []int{3, 16} {
		w := NewWindow(size, false)
		r := &rig{t: t, s: newScope(t), rng: rand.New(rand.NewSource(1)), state: w, size: size}
		for range 300 {
			switch r.rng.Intn(4) {
			case 0: // verified, all of it right
				w.Checkpoint()
				r.forward(2 + r.rng.Intn(6))
			case 1: // verified, some right, some of those taken back
				w.Checkpoint()
				mark := len(r.history.keys)
				r.forward(6)
				r.rollback(mark, 1+r.rng.Intn(5))
				r.rollback(mark, 1)
			case 2: // dropped, and verified again from the same checkpoint
				w.Checkpoint()
				mark := len(r.history.keys)
				r.forward(4)
				r.rollback(mark, 0)
				r.forward(6)
				r.rollback(mark, 2)
			}
			w.Checkpoint()
			r.forward(1)
			w.Checkpoint()
			mark := len(r.history.keys)
			r.forward(1)
			r.rollback(mark, r.rng.Intn(2))
		}
		w.Free()
	}
}

func TestFullAgainstHistory(t *testing.T) {
	s := newScope(t)
	for _, pad := range []bool{false, true} {
		f := NewFull(pad)
		r := &rig{t: t, s: s, rng: rand.New(rand.NewSource(2)), state: f, size: math.MaxInt32}
		for range 40 {
			r.forward(1 + r.rng.Intn(3))
			f.Checkpoint()
			mark, n := len(r.history.keys), 1+r.rng.Intn(20)
			r.forward(n)
			r.rollback(mark, r.rng.Intn(n+1))
		}
		f.Free()
	}
}

// Single tokens are written where the ring lies, and it holds the window alone.
// A verification adds its tail, and no prompt adds anything.
func TestWindowStaysBounded(t *testing.T) {
	s := newScope(t)
	const size, row = 64, 2 * testHeads * testWidth * 4
	w := NewWindow(size, false)
	defer w.Free()
	step := func(n int) {
		t.Helper()
		s.Reset()
		k := s.Ones(mlxc.Float32, 1, testHeads, n, testWidth)
		keys := w.Update(s, k, k).Keys
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		if n == 1 && keys.Dim(2) != min(size, w.Offset()) {
			t.Fatalf("%d keys in view at %d", keys.Dim(2), w.Offset())
		}
		s.Close()
		if err := mlxc.Eval(w.Arrays()...); err != nil {
			t.Fatal(err)
		}
	}
	bounded := func(rows int) {
		t.Helper()
		at := w.keys.DataPtr()
		for range 300 {
			w.Checkpoint()
			step(1)
			if w.keys.DataPtr() != at {
				t.Fatalf("the ring moved at %d", w.Offset())
			}
		}
		if w.Bytes() > rows*row {
			t.Errorf("%d bytes at %d, want at most %d", w.Bytes(), w.Offset(), rows*row)
		}
	}
	for range 100 {
		step(1)
	}
	bounded(size)
	for _, n := range []int{1000, 10} { // prompts
		step(n)
		bounded(size)
	}
	w.Checkpoint()
	step(9)
	step(1)
	bounded(size + MaxReplay)
	step(10)
	bounded(size)
}

// With pad, the lengths of views come from a small set; only prompts that are
// cut into pieces of odd lengths have their own.
func TestWindowPadsViews(t *testing.T) {
	for _, size := range []int{16, 512, 1000} {
		lengths := map[int]bool{}
		w := NewWindow(size, true)
		for i := range 5000 {
			w.Checkpoint()
			rows := 2 + i%(MaxReplay-1)
			n := w.view(rows, w.way(rows))
			if n < min(w.Offset(), size)+rows {
				t.Fatalf("size %d, %d rows at %d: %d keys", size, rows, w.Offset(), n)
			}
			lengths[n] = true
			w.advance(1)
		}
		if most := size/Step + 2; len(lengths) > most {
			t.Errorf("size %d: %d lengths of views, want at most %d: %v", size, len(lengths), most, lengths)
		}
	}
}

// What cannot be brought back is refused and changes nothing.
func TestWindowRefusesToGoTooFar(t *testing.T) {
	w := NewWindow(8, false)
	defer w.Free()
	r := &rig{t: t, s: newScope(t), rng: rand.New(rand.NewSource(3)), state: w, size: 8}
	refuse := func(keep int) {
		t.Helper()
		if err := w.Rollback(r.s, keep); err == nil {
			t.Errorf("keeping %d tokens was not refused", keep)
		}
	}
	r.forward(4)
	w.Checkpoint()
	for range 4 {
		r.forward(1)
	}
	r.rollback(4, 1) // nothing was overwritten so far
	for range 30 {
		r.forward(1)
	}
	for _, keep := range []int{-1, 32, 0, 1, 29} {
		refuse(keep)
	}
	r.forward(1)
	r.rollback(4, 31)
	r.forward(3)
	w.Checkpoint()
	mark := len(r.history.keys)
	r.forward(MaxReplay + 1) // no verification
	refuse(0)
	refuse(MaxReplay - 1)
	r.rollback(mark, MaxReplay)
	r.forward(1)
	r.forward(5)
}
