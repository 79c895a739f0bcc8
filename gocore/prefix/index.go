// Package prefix finds the longest known beginning of a prompt. It is pure: what
// is kept for a beginning is an opaque payload id, which the engine maps to
// states.
//
// A beginning is a chain of blocks (gocore/blocks). At some of them lies a
// checkpoint: a payload with which a request can go on. Layers that keep all keys
// could go on at every block, so their payload at a block may hold the tokens
// since the checkpoint before alone, and a lookup names all payloads on the way;
// windowed and recurrent layers go on only where their whole state was stored.
//
// # Calls
//
// Before a request joins: Lookup, which holds what it names; copy the payloads;
// Release. At the end of a prompt, at the end of an answer and every
// CheckpointEvery tokens (see Checkpoints): Insert, and store the payload if it
// was taken. Names that Dropped returns, after any of these, are to be freed.
package prefix

import (
	"axlm/gocore/blocks"
)

// CheckpointEvery is after how many tokens of a prompt a state may be kept; a
// multiple of a block.
const CheckpointEvery = 256

// Checkpoints lists where a state of a prompt of n tokens is to be kept, after
// the first from: every CheckpointEvery tokens, and the last whole block before
// the end, since at least one token must be computed for logits.
func Checkpoints(from, n int) []int {
	var all []int
	last := (n - 1) / blocks.Size * blocks.Size
	for p := (from/CheckpointEvery + 1) * CheckpointEvery; p < last; p += CheckpointEvery {
		all = append(all, p)
	}
	if last > from {
		all = append(all, last)
	}
	return all
}

// Match is the longest known beginning of a prompt.
type Match struct {
	Tokens   int      // its length, a multiple of blocks.Size; 0: nothing is known
	Payload  uint64   // the checkpoint's there
	Payloads []uint64 // those of all checkpoints up to it, the first first
	Ends     []int    // where each of them ends

	block *blocks.Block
}

// Stats describe an index.
type Stats struct {
	Lookups, Hits uint64
	Reused        uint64 // tokens
	Refused       uint64 // payloads without room
	Blocks        blocks.Stats
}

// Index maps beginnings to payloads. It is not safe for concurrent use.
type Index struct {
	ledger  *blocks.Ledger
	dropped []uint64
	names   map[uint64]bool // payloads that are kept
	stats   Stats
}

// NewIndex returns an empty index whose payloads may take budget bytes in all.
func NewIndex(budget int64) *Index {
	x := &Index{ledger: blocks.NewLedger(budget), names: map[uint64]bool{}}
	x.ledger.Gone = func(b *blocks.Block) {
		if b.Payload != 0 {
			x.dropped = append(x.dropped, b.Payload)
			delete(x.names, b.Payload)
		}
	}
	return x
}

// Lookup finds the longest beginning of tokens, kept under salt, that leaves at
// least one token to compute. Its payloads stay until Release.
func (x *Index) Lookup(salt string, tokens []int32) Match {
	x.stats.Lookups++
	var m Match
	var at *blocks.Block
	for end := blocks.Size; end < len(tokens); end += blocks.Size {
		if at = x.ledger.Find(salt, at, tokens[end-blocks.Size:end]); at == nil {
			break
		}
		if at.Payload != 0 {
			m.Tokens, m.Payload, m.block = end, at.Payload, at
			m.Payloads, m.Ends = append(m.Payloads, at.Payload), append(m.Ends, end)
		}
	}
	if m.block != nil {
		x.ledger.Touch(m.block)
		x.ledger.Hold(m.block)
		x.stats.Hits++
		x.stats.Reused += uint64(m.Tokens)
	}
	return m
}

// Known tells whether there is a payload after tokens, a whole number of blocks.
func (x *Index) Known(salt string, tokens []int32) bool {
	var at *blocks.Block
	for end := blocks.Size; end <= len(tokens); end += blocks.Size {
		if at = x.ledger.Find(salt, at, tokens[end-blocks.Size:end]); at == nil {
			return false
		}
	}
	return at != nil && at.Payload != 0
}

// Release ends the use of what Lookup found.
func (x *Index) Release(m *Match) {
	x.ledger.Release(m.block)
	m.block = nil
}

// Insert keeps payload, of bytes, as the checkpoint after tokens, a whole number
// of blocks. false: there is one already, or no room; the payload is the
// caller's then. A payload's name is not 0 and used once.
func (x *Index) Insert(salt string, tokens []int32, payload uint64, bytes int64) bool {
	if len(tokens) == 0 || len(tokens)%blocks.Size != 0 || payload == 0 || bytes < 0 || x.names[payload] {
		return false
	}
	var at *blocks.Block
	for end := blocks.Size; end <= len(tokens); end += blocks.Size {
		next, _ := x.ledger.Add(salt, at, tokens[end-blocks.Size:end], 0)
		if next == nil {
			x.prune(at)
			x.stats.Refused++
			return false
		}
		at = next
	}
	x.ledger.Touch(at)
	if at.Payload != 0 {
		return false
	}
	if !x.ledger.Attach(at, bytes) {
		x.prune(at)
		x.stats.Refused++
		return false
	}
	at.Payload = payload
	x.names[payload] = true
	return true
}

// prune forgets the blocks at the end of a chain that lead to no payload.
func (x *Index) prune(at *blocks.Block) {
	for at != nil && at.Payload == 0 {
		parent := at.Parent()
		if !x.ledger.Evict(at) {
			return
		}
		at = parent
	}
}

// Shrink evicts what nobody uses until the payloads take at most
// bytes: for the memory that a plan reclaims. false: users prevent it.
func (x *Index) Shrink(bytes int64) bool { return x.ledger.Shrink(bytes) }

// SetBudget changes the budget.
func (x *Index) SetBudget(bytes int64) { x.ledger.SetBudget(bytes) }

// Budget is what the payloads may take in all.
func (x *Index) Budget() int64 { return x.ledger.Budget() }

// Bytes is what the payloads take.
func (x *Index) Bytes() int64 { return x.ledger.Stats().Bytes }

// Dropped returns the payloads evicted since the last call, to be freed.
func (x *Index) Dropped() []uint64 {
	d := x.dropped
	x.dropped = nil
	return d
}

// Stats counts.
func (x *Index) Stats() Stats {
	st := x.stats
	st.Blocks = x.ledger.Stats()
	return st
}
