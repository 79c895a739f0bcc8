package kvcache

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"axlm/mlxc"
)

const (
	recurrentWidth    = 4 // of the convolution
	recurrentChannels = 5
)

// fold is a recurrence in which each row counts and the order matters:
// S ← g·S + β·v·kᵀ.
func fold(s *mlxc.Scope, state mlxc.Array, rows RecurrentRows) mlxc.Array {
	batch, heads := rows.V.Dim(0), rows.V.Dim(2)
	if !state.Valid() {
		state = s.Zeros(mlxc.Float32, batch, heads, rows.V.Dim(3), rows.K.Dim(3))
	}
	for t := range rows.K.Dim(1) {
		row := func(a mlxc.Array, shape ...int) mlxc.Array {
			return s.Reshape(s.Take(a, s.FromInt32s([]int32{int32(t)}, 1), 1), append([]int{batch, heads}, shape...)...)
		}
		added := s.Multiply(row(rows.V, -1, 1), s.Multiply(row(rows.K, 1, -1), row(rows.Beta, 1, 1)))
		state = s.Add(s.Multiply(state, row(rows.G, 1, 1)), added)
	}
	return state
}

// recurrentRig feeds random tokens to states, the same to all.
type recurrentRig struct {
	t      *testing.T
	s      *mlxc.Scope
	batch  int
	tokens [][]float32 // what each token feeds, for the whole batch, in a fixed order
}

func newRecurrentRig(t *testing.T, batch, tokens int) *recurrentRig {
	r := &recurrentRig{t: t, s: newScope(t), batch: batch}
	random := rand.New(rand.NewSource(3))
	for range tokens {
		values := make([]float32, batch*(recurrentChannels+2*3+2*4+2+2))
		for i := range values {
			values[i] = random.Float32()*2 - 1
		}
		r.tokens = append(r.tokens, values)
	}
	return r
}

// forward takes tokens from..to into the state, as a layer does.
func (r *recurrentRig) forward(c *Recurrent, from, to int) {
	r.t.Helper()
	s := r.s
	s.Reset()
	next := 0
	part := func(dims ...int) mlxc.Array {
		size := r.batch
		for _, d := range dims {
			size *= d
		}
		rows := make([]mlxc.Array, 0, to-from)
		for _, token := range r.tokens[from:to] {
			rows = append(rows, s.FromFloat32s(token[next:next+size], append([]int{r.batch, 1}, dims...)...))
		}
		next += size
		return s.Concatenate(1, rows...)
	}
	rows := RecurrentRows{
		Conv: c.Window(s, part(recurrentChannels), recurrentWidth),
		K:    part(2, 3), V: part(2, 4), G: part(2), Beta: part(2),
	}
	c.Update(s, rows, fold(s, c.State(), rows))
	r.check()
}

func (r *recurrentRig) check() {
	r.t.Helper()
	if r.s.Err() != nil {
		r.t.Fatal(r.s.Err())
	}
	r.s.Close()
}

func (r *recurrentRig) rollback(c *Recurrent, keep int) {
	r.t.Helper()
	r.s.Reset()
	if err := c.Rollback(r.s, keep); err != nil {
		r.t.Fatal(err)
	}
	r.check()
}

// same wants the state that a fresh run over the first n tokens has.
func (r *recurrentRig) same(c *Recurrent, n int, what string) {
	r.t.Helper()
	fresh := NewRecurrent(fold)
	defer fresh.Free()
	if n > 0 {
		r.forward(fresh, 0, n)
	}
	if c.Offset() != n {
		r.t.Fatalf("%s: the state says %d tokens, want %d", what, c.Offset(), n)
	}
	if got, want := r.values(c), r.values(fresh); !slices.Equal(got, want) {
		r.t.Fatalf("%s: the state differs from a fresh run over %d tokens:\n%v\n%v", what, n, got, want)
	}
}

func (r *recurrentRig) values(c *Recurrent) []float32 {
	r.t.Helper()
	var all []float32
	if err := mlxc.Eval(c.Arrays()...); err != nil {
		r.t.Fatal(err)
	}
	for _, a := range c.Arrays() {
		v, err := a.Float32s()
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, v...)
	}
	return all
}

// After any number of tokens and a checkpoint, a forward of any width can be
// cut to any length, and that again to any shorter one; then it goes on.
func TestRecurrentRollback(t *testing.T) {
	for _, batch := range []int{1, 2} {
		for _, before := range []int{0, 1, 6} {
			for _, width := range []int{1, 2, 5} {
				r := newRecurrentRig(t, batch, before+width+4)
				for keep := 0; keep <= width; keep++ {
					for again := 0; again <= keep; again++ {
						what := fmt.Sprintf("batch %d, %d tokens, %d of %d, then %d", batch, before, keep, width, again)
						c := NewRecurrent(fold)
						if before > 0 {
							r.forward(c, 0, before)
						}
						c.Checkpoint()
						r.forward(c, before, before+width)
						r.rollback(c, keep)
						r.same(c, before+keep, what)
						r.rollback(c, again)
						r.same(c, before+again, what)
						r.forward(c, before+again, before+again+2)
						r.same(c, before+again+2, what+", and two more")
						r.rollback(c, again)
						r.same(c, before+again, what+", and two more taken back")
						c.Free()
					}
				}
			}
		}
	}
}

// A step of one token can be taken back without a checkpoint, and after one.
func TestRecurrentTakesBackAStep(t *testing.T) {
	r := newRecurrentRig(t, 1, 12)
	c := NewRecurrent(fold)
	defer c.Free()
	r.forward(c, 0, 1)
	r.rollback(c, 0)
	r.same(c, 0, "the first token taken back")
	r.forward(c, 0, 4)
	r.forward(c, 4, 5)
	r.rollback(c, 4)
	r.same(c, 4, "a step taken back")
	c.Checkpoint()
	r.forward(c, 4, 7)
	r.rollback(c, 2)
	r.forward(c, 6, 7)
	r.forward(c, 7, 8)
	r.rollback(c, 3)
	r.same(c, 7, "a step after a rollback taken back")
	r.rollback(c, 1)
	r.same(c, 5, "a token of the forward before it taken back")
}

// What cannot be brought back is refused and changes nothing.
func TestRecurrentRefuses(t *testing.T) {
	r := newRecurrentRig(t, 1, MaxReplay+8)
	c := NewRecurrent(fold)
	defer c.Free()
	refuse := func(keep int) {
		t.Helper()
		offset, values := c.Offset(), r.values(c)
		if err := c.Rollback(r.s, keep); err == nil {
			t.Errorf("keeping %d tokens was not refused", keep)
		}
		if c.Offset() != offset || !slices.Equal(r.values(c), values) {
			t.Errorf("the refused rollback to %d changed the state", keep)
		}
	}
	r.forward(c, 0, 3)
	c.Checkpoint()
	r.forward(c, 3, 5)
	refuse(-1)
	refuse(3)
	r.forward(c, 5, 7)
	refuse(3) // within a forward that no checkpoint announced
	r.rollback(c, 2)
	r.same(c, 5, "the forward that one did announce")

	c.Checkpoint()
	r.forward(c, 5, 5+MaxReplay+1)
	refuse(1)
	r.rollback(c, 0)
	r.same(c, 5, "the state before a wide forward")
	r.forward(c, 5, 5+MaxReplay)
	r.rollback(c, 7)
	r.same(c, 12, "the widest forward that can be cut")
}

// Plain decoding holds the present state and the one before, however long it
// is; inputs are kept for a forward after a checkpoint only.
func TestRecurrentMemory(t *testing.T) {
	r := newRecurrentRig(t, 1, 40)
	c := NewRecurrent(fold)
	defer c.Free()
	r.forward(c, 0, 5)
	one := c.Bytes()
	if want := 4 * ((recurrentWidth-1)*recurrentChannels + 2*3*4); one != want {
		t.Errorf("after a prefill the state takes %d bytes, want %d", one, want)
	}
	for i := 5; i < 20; i++ {
		r.forward(c, i, i+1)
		if got := c.Bytes(); got != 2*one {
			t.Fatalf("after %d tokens the state takes %d bytes, want %d", i+1, got, 2*one)
		}
	}
	c.Checkpoint()
	r.forward(c, 20, 23)
	if got, inputs := c.Bytes(), 4*((recurrentWidth-1+3)*recurrentChannels+3*(2*3+2*4+2+2)); got != 2*one+inputs {
		t.Errorf("after a checkpoint and 3 tokens the state takes %d bytes, want %d", got, 2*one+inputs)
	}
	c.Checkpoint()
	if got := c.Bytes(); got != 2*one {
		t.Errorf("after a second checkpoint the state takes %d bytes, want %d", got, 2*one)
	}
	c.Free()
	if c.Bytes() != 0 || c.Offset() != 0 || c.Arrays() != nil {
		t.Error("a freed state still holds something")
	}
}
