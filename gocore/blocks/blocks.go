// Package blocks keeps account of blocks of tokens: which are kept, on which
// others they build, who uses them, and what they take. It knows nothing of what
// a block's memory is; an owner attaches a payload's size and evicts it when told.
//
// A block is Size tokens after a parent, or after nothing under a salt. Its hash
// chains the parent's; since hashes may collide, tokens and parent are compared
// on a hit. Blocks with users or children stay; of the others the one used
// longest ago, by the count of calls, goes first, so that chains shrink from
// their ends.
package blocks

import (
	"container/heap"
	"slices"
)

// Size is how many tokens a block has.
const Size = 16

// Hash is a block's place in the index.
type Hash uint64

// Seed begins the chains under a salt: equal tokens under different salts share
// nothing.
func Seed(salt string) Hash {
	h := Hash(14695981039346656037)
	for _, c := range []byte(salt) {
		h = (h ^ Hash(c)) * 1099511628211
	}
	return mix(h, uint64(len(salt)))
}

func mix(h Hash, v uint64) Hash {
	x := uint64(h) ^ v
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return Hash(x ^ x>>31)
}

// Chain is the hash of a block of tokens after parent.
func Chain(parent Hash, tokens []int32) Hash {
	h := parent
	for _, t := range tokens {
		h = mix(h, uint64(uint32(t))+0x9e3779b97f4a7c15)
	}
	return h
}

// Block is a kept block.
type Block struct {
	Payload uint64 // the owner's name for what is stored; 0: nothing

	salt     string // of a block without a parent
	parent   *Block
	tokens   [Size]int32
	hash     Hash
	depth    int // blocks up to and with this one
	bytes    int64
	users    int
	children int
	used     uint64
	place    int // in the heap of those that may go, −1: not there
}

// Depth is how many blocks there are up to this one.
func (b *Block) Depth() int { return b.depth }

// Parent is the block before, nil for a first one.
func (b *Block) Parent() *Block { return b.parent }

// Bytes is what it takes.
func (b *Block) Bytes() int64 { return b.bytes }

// Ledger holds blocks within a budget. It is not safe for concurrent use.
type Ledger struct {
	// Gone is called for each block that is evicted, before it is forgotten.
	Gone func(*Block)

	budget, bytes int64
	clock         uint64
	count         int
	evicted       uint64
	index         map[Hash][]*Block
	idle          idle
	chain         func(Hash, []int32) Hash // Chain, but for tests
}

// NewLedger returns a ledger of no blocks.
func NewLedger(budget int64) *Ledger {
	return &Ledger{budget: budget, index: map[Hash][]*Block{}, chain: Chain}
}

// Stats describe a ledger.
type Stats struct {
	Blocks, Used, Shared int // all; with a user; with several
	Evicted              uint64
	Bytes, Budget        int64
}

// Stats counts.
func (l *Ledger) Stats() Stats {
	st := Stats{Blocks: l.count, Evicted: l.evicted, Bytes: l.bytes, Budget: l.budget}
	for _, list := range l.index {
		for _, b := range list {
			if b.users > 0 {
				st.Used++
			}
			if b.users > 1 {
				st.Shared++
			}
		}
	}
	return st
}

// Find returns the block of tokens (Size of them) after parent, nil if there is
// none.
func (l *Ledger) Find(salt string, parent *Block, tokens []int32) *Block {
	for _, b := range l.index[l.hash(salt, parent, tokens)] {
		if b.is(salt, parent, tokens) {
			return b
		}
	}
	return nil
}

func (b *Block) is(salt string, parent *Block, tokens []int32) bool {
	return b.parent == parent && (parent != nil || b.salt == salt) && slices.Equal(b.tokens[:], tokens)
}

func (l *Ledger) hash(salt string, parent *Block, tokens []int32) Hash {
	if parent != nil {
		return l.chain(parent.hash, tokens)
	}
	return l.chain(Seed(salt), tokens)
}

// Add returns the block of tokens after parent, making it if there is none. A new
// one takes bytes; room is made by eviction. nil: there is no room. The parent is
// held while room is made.
func (l *Ledger) Add(salt string, parent *Block, tokens []int32, bytes int64) (b *Block, made bool) {
	if b := l.Find(salt, parent, tokens); b != nil {
		return b, false
	}
	l.Hold(parent)
	defer l.Release(parent)
	if bytes < 0 || !l.Shrink(l.budget-bytes) {
		return nil, false
	}
	l.clock++
	b = &Block{parent: parent, hash: l.hash(salt, parent, tokens), depth: 1, bytes: bytes, used: l.clock, place: -1}
	copy(b.tokens[:], tokens)
	if parent != nil {
		b.depth = parent.depth + 1
		parent.children++
	} else {
		b.salt = salt
	}
	l.index[b.hash] = append(l.index[b.hash], b)
	l.bytes += bytes
	l.count++
	l.settle(b)
	return b, true
}

// Attach adds bytes to a block's size: a payload that came later. false: there
// is no room, and nothing changed.
func (l *Ledger) Attach(b *Block, bytes int64) bool {
	l.Hold(b)
	defer l.Release(b)
	if bytes < 0 || !l.Shrink(l.budget-bytes) {
		return false
	}
	b.bytes += bytes
	l.bytes += bytes
	return true
}

// Hold makes b stay until as many calls of Release; nil is allowed.
func (l *Ledger) Hold(b *Block) {
	if b != nil {
		b.users++
		l.settle(b)
	}
}

// Release ends a Hold.
func (l *Ledger) Release(b *Block) {
	if b == nil {
		return
	}
	if b.users == 0 {
		panic("blocks: released more often than held")
	}
	b.users--
	l.settle(b)
}

// Touch notes a use of b and of the blocks before it.
func (l *Ledger) Touch(b *Block) {
	l.clock++
	for ; b != nil; b = b.parent {
		b.used = l.clock
		if b.place >= 0 {
			heap.Fix(&l.idle, b.place)
		}
	}
}

// settle puts b among those that may go, or takes it out.
func (l *Ledger) settle(b *Block) {
	free := b.users == 0 && b.children == 0
	switch {
	case free && b.place < 0:
		heap.Push(&l.idle, b)
	case !free && b.place >= 0:
		heap.Remove(&l.idle, b.place)
	}
}

// Budget is what the blocks may take in all.
func (l *Ledger) Budget() int64 { return l.budget }

// SetBudget changes the budget and evicts what is over it. What is in use may
// stay over it until it is released.
func (l *Ledger) SetBudget(bytes int64) {
	l.budget = bytes
	l.Shrink(bytes)
}

// Shrink evicts until at most bytes are taken; false if users prevent it. Nothing
// goes for an aim that even an empty ledger misses.
func (l *Ledger) Shrink(bytes int64) bool {
	if bytes < 0 {
		return false
	}
	for l.bytes > bytes && len(l.idle) > 0 {
		l.Evict(l.idle[0])
	}
	return l.bytes <= bytes
}

// Evict forgets a block without users or children; others stay, with false.
func (l *Ledger) Evict(b *Block) bool {
	if b.place < 0 {
		return false
	}
	if l.Gone != nil {
		l.Gone(b)
	}
	heap.Remove(&l.idle, b.place)
	list := l.index[b.hash]
	if list = slices.Delete(list, slices.Index(list, b), slices.Index(list, b)+1); len(list) == 0 {
		delete(l.index, b.hash)
	} else {
		l.index[b.hash] = list
	}
	l.bytes -= b.bytes
	l.count--
	l.evicted++
	if p := b.parent; p != nil {
		p.children--
		l.settle(p)
	}
	return true
}

// idle are the blocks that may go, the one used longest ago first; of those used
// at once, the deepest.
type idle []*Block

func (h idle) Len() int { return len(h) }
func (h idle) Less(i, j int) bool {
	return h[i].used < h[j].used || h[i].used == h[j].used && h[i].depth > h[j].depth
}
func (h idle) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *idle) Push(x any) {
	b := x.(*Block)
	b.place = len(*h)
	*h = append(*h, b)
}
func (h *idle) Pop() any {
	old := *h
	b := old[len(old)-1]
	*h = old[:len(old)-1]
	b.place = -1
	return b
}
