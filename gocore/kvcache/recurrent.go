package kvcache

import (
	"fmt"

	"axlm/mlxc"
)

// MaxReplay is how many rows the forward after a checkpoint may have for
// Recurrent to be able to go back into the middle of it. No verification is
// wider; what is wider is a prompt, whose inputs are too large to keep.
const MaxReplay = 64

// RecurrentRows are what the rows of one forward feed to a recurrent layer.
type RecurrentRows struct {
	// Conv is what the convolution reads, [B, width−1+T, channels]: the rows
	// before, then the T new ones.
	Conv mlxc.Array
	// K and V, [B, T, heads, head size], and G and Beta, [B, T, value heads],
	// are what the recurrence reads.
	K, V, G, Beta mlxc.Array
}

// Recurrence computes the state after rows from the state before them, which
// is none before the first token.
type Recurrence func(s *mlxc.Scope, state mlxc.Array, rows RecurrentRows) mlxc.Array

// Recurrent is the state of a layer that sums up all tokens in one matrix a
// head, as gated delta linear attention does. Such a state cannot drop its last
// tokens. Instead a checkpoint keeps the state before it, and the forward after
// it keeps its inputs: going back to the middle of that forward runs the
// recurrence alone, over the rows that stay, from the state before. It is the
// same computation that a forward over those rows makes, to the last bit.
//
// A step of one token can also be taken back without a checkpoint, since the
// state before it is kept until the next: the engine may have launched a step
// that nobody wants any more.
type Recurrent struct {
	now    snapshot
	mark   snapshot // at the checkpoint
	before snapshot // before the last step of one token, while stepped

	recurrence Recurrence
	stepped    bool          // before is what one token ago was
	recording  bool          // the next forward follows the checkpoint
	rows       RecurrentRows // of the forward after the checkpoint
	replayable int           // how many of them are still part of the history
}

// snapshot is the state after length tokens; it owns its handles.
type snapshot struct {
	conv   mlxc.Array // [B, width−1, channels]: the last inputs of the convolution
	state  mlxc.Array // [B, value heads, value size, key size], float32
	length int
}

func (p *snapshot) free() {
	p.conv.Free()
	p.state.Free()
	*p = snapshot{}
}

// keep is a snapshot with handles of its own.
func (p *snapshot) keep() snapshot {
	return snapshot{conv: p.conv.Clone(), state: p.state.Clone(), length: p.length}
}

func (p *snapshot) bytes() int { return p.conv.NBytes() + p.state.NBytes() }

func (r *RecurrentRows) arrays() []*mlxc.Array {
	return []*mlxc.Array{&r.Conv, &r.K, &r.V, &r.G, &r.Beta}
}

func (r *RecurrentRows) free() {
	for _, a := range r.arrays() {
		a.Free()
	}
	*r = RecurrentRows{}
}

// NewRecurrent returns an empty state that goes back by recurrence.
func NewRecurrent(recurrence Recurrence) *Recurrent { return &Recurrent{recurrence: recurrence} }

// Offset implements Layer.
func (c *Recurrent) Offset() int { return c.now.length }

// State is what the recurrence starts from; none before the first token. The
// layer still owns it.
func (c *Recurrent) State() mlxc.Array { return c.now.state }

// Window is what a convolution over width rows reads for the new rows x
// [B, T, channels]: the last width−1 rows before them, zeros where there are
// none, then x.
func (c *Recurrent) Window(s *mlxc.Scope, x mlxc.Array, width int) mlxc.Array {
	past := c.now.conv
	if !past.Valid() {
		past = s.Zeros(x.DType(), x.Dim(0), width-1, x.Dim(2))
	}
	return s.Concatenate(1, past, x)
}

// Update takes in a forward: what it fed to the layer, and the state that came
// out.
func (c *Recurrent) Update(s *mlxc.Scope, rows RecurrentRows, state mlxc.Array) {
	if s.Err() != nil {
		return
	}
	n := rows.K.Dim(1)
	next := snapshot{conv: tail(s, rows.Conv, rows.Conv.Dim(1)-n, n), state: s.Keep(state), length: c.now.length + n}
	record := c.recording && n <= MaxReplay
	if record {
		for _, a := range rows.arrays() {
			*a = s.Keep(*a)
		}
	}
	if s.Err() != nil {
		next.free()
		if record {
			rows.free()
		}
		return
	}
	c.before.free()
	if c.stepped = n == 1 && !record; c.stepped {
		c.before = c.now // costs nothing but that it lives one step longer
	} else {
		c.now.free()
	}
	c.now = next
	if record {
		c.rows.free()
		c.rows, c.replayable = rows, n
	}
	c.recording = false
}

// tail keeps what the convolution reads again once it has read the first n new
// rows of window, past rows. MLX copies them if that lets a large window go.
func tail(s *mlxc.Scope, window mlxc.Array, past, n int) mlxc.Array {
	rows := s.Slice(window, []int{0, n, 0}, []int{window.Dim(0), n + past, window.Dim(2)})
	return s.Keep(s.Contiguous(rows))
}

// Checkpoint implements Layer.
func (c *Recurrent) Checkpoint() {
	c.forget()
	c.mark = c.now.keep()
	c.recording = true
}

// forget gives up everything that is kept to go back.
func (c *Recurrent) forget() {
	c.rows.free()
	c.replayable, c.recording = 0, false
	c.mark.free()
	c.dropBefore()
}

func (c *Recurrent) dropBefore() {
	c.before.free()
	c.stepped = false
}

// Rollback implements Layer. It can keep all tokens, none, any number of the
// first forward's if that had at most MaxReplay rows, and all but the last if
// that came alone.
func (c *Recurrent) Rollback(s *mlxc.Scope, keep int) error {
	target := c.mark.length + keep
	switch {
	case keep < 0 || target > c.now.length:
		return fmt.Errorf("cannot keep %d tokens of the %d after the checkpoint", keep, c.now.length-c.mark.length)
	case target == c.now.length:
		return nil
	case c.stepped && target == c.before.length:
		c.now.free()
		c.now, c.before, c.stepped = c.before, snapshot{}, false
		return nil
	case keep == 0 && c.mark.length > 0 && !c.mark.state.Valid():
		return fmt.Errorf("cannot go back %d tokens: no checkpoint was set", c.now.length-target)
	case keep > c.replayable:
		return fmt.Errorf("cannot keep %d tokens: the recurrent state can be brought back for the first %d only", keep, c.replayable)
	}
	var next snapshot
	if keep == 0 {
		next = c.mark.keep()
	} else if next = c.replay(s, keep); s.Err() != nil {
		next.free()
		return s.Err()
	}
	c.dropBefore()
	c.now.free()
	c.now, c.replayable = next, keep
	c.recording = keep == 0 // as if the checkpoint had just been set
	return nil
}

// replay runs the recurrence over the first keep recorded rows.
func (c *Recurrent) replay(s *mlxc.Scope, keep int) snapshot {
	rows := c.rows
	past := rows.Conv.Dim(1) - rows.K.Dim(1)
	rows.K, rows.V = firstRows(s, rows.K, keep), firstRows(s, rows.V, keep)
	rows.G, rows.Beta = firstRows(s, rows.G, keep), firstRows(s, rows.Beta, keep)
	return snapshot{
		conv:   tail(s, c.rows.Conv, past, keep),
		state:  s.Keep(c.recurrence(s, c.mark.state, rows)),
		length: c.mark.length + keep,
	}
}

// firstRows is the first n rows of a [B, T, …].
func firstRows(s *mlxc.Scope, a mlxc.Array, n int) mlxc.Array {
	stop := a.Shape()
	start := make([]int, len(stop))
	if stop[1] == n {
		return a
	}
	stop[1] = n
	return s.Slice(a, start, stop)
}

// Arrays implements Layer.
func (c *Recurrent) Arrays() []mlxc.Array {
	if !c.now.state.Valid() {
		return nil
	}
	return []mlxc.Array{c.now.conv, c.now.state}
}

// Bytes implements Layer. It counts what is kept to go back as well.
func (c *Recurrent) Bytes() int {
	n := c.now.bytes() + c.mark.bytes() + c.before.bytes()
	for _, a := range c.rows.arrays() {
		n += a.NBytes()
	}
	return n
}

// Free implements Layer.
func (c *Recurrent) Free() {
	c.forget()
	c.now.free()
	*c = Recurrent{recurrence: c.recurrence}
}
