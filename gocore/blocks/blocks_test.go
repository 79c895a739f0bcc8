package blocks

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// check compares a ledger's counts with what it holds.
func check(t *testing.T, l *Ledger, budget int64) {
	t.Helper()
	bytes, count, idle := int64(0), 0, 0
	children := map[*Block]int{}
	all := map[*Block]bool{}
	for _, list := range l.index {
		for _, b := range list {
			all[b] = true
			bytes += b.bytes
			count++
			children[b.parent]++
		}
	}
	for b := range all {
		if b.parent != nil && !all[b.parent] {
			t.Fatal("a block's parent is gone")
		}
		free := b.users == 0 && children[b] == 0
		if children[b] != b.children || free != (b.place >= 0) || free && l.idle[b.place] != b {
			t.Fatalf("%d users, %d children of %d, place %d", b.users, children[b], b.children, b.place)
		}
		if free {
			idle++
		}
	}
	if bytes != l.bytes || count != l.count || idle != len(l.idle) || bytes > budget {
		t.Fatalf("%d bytes of %d, told %d; %d blocks, told %d; %d idle of %d", bytes, budget, l.bytes, count, l.count, idle, len(l.idle))
	}
}

// TestRandomCalls runs 100,000 calls, with hashes of which many collide.
func TestRandomCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := NewLedger(4000)
	l.chain = func(h Hash, tokens []int32) Hash { return Chain(h, tokens) % 7 }
	gone := map[*Block]bool{}
	l.Gone = func(b *Block) { gone[b] = true }
	text := func() (string, []int32) {
		tokens := make([]int32, Size*(1+r.IntN(4)))
		for i := range tokens {
			tokens[i] = int32(r.IntN(3) * (i / Size) % 3)
			if i%Size != 0 {
				tokens[i] = tokens[i/Size*Size]
			}
		}
		return []string{"", "a"}[r.IntN(2)], tokens
	}
	var held []*Block
	for range 100_000 {
		salt, tokens := text()
		switch r.IntN(5) {
		case 0, 1:
			var at *Block
			for end := Size; end <= len(tokens); end += Size {
				b, _ := l.Add(salt, at, tokens[end-Size:end], int64(r.IntN(200)))
				if b == nil {
					break
				}
				if !slices.Equal(b.tokens[:], tokens[end-Size:end]) || b.depth != end/Size || b.depth == 1 && b.salt != salt {
					t.Fatal("another block was found")
				}
				at = b
			}
		case 2:
			var at *Block
			for end := Size; end <= len(tokens); end += Size {
				b := l.Find(salt, at, tokens[end-Size:end])
				if b == nil {
					break
				}
				at = b
			}
			if at != nil && len(held) < 20 {
				l.Hold(at)
				l.Touch(at)
				held = append(held, at)
			}
		case 3:
			if n := len(held); n > 0 {
				i := r.IntN(n)
				l.Release(held[i])
				held = slices.Delete(held, i, i+1)
			}
		case 4:
			l.Shrink(int64(r.IntN(6000)))
		}
		for _, b := range held {
			if gone[b] {
				t.Fatal("a block in use was evicted")
			}
		}
		check(t, l, 4000)
	}
	for _, b := range held {
		l.Release(b)
	}
	if !l.Shrink(0) || l.count != 0 || len(l.index) != 0 {
		t.Errorf("%d blocks leaked", l.count)
	}
}

func TestTheLeafUsedLongestAgoGoesFirst(t *testing.T) {
	l := NewLedger(3)
	block := func(v int32) []int32 { return slices.Repeat([]int32{v}, Size) }
	a, _ := l.Add("", nil, block(1), 1)
	b, _ := l.Add("", a, block(2), 1)
	c, _ := l.Add("", a, block(3), 1)
	l.Touch(b)
	l.Add("", nil, block(4), 1)
	if l.Find("", a, c.tokens[:]) != nil || l.Find("", a, b.tokens[:]) != b || l.Find("", nil, block(1)) != a {
		t.Error("not the leaf used longest ago went")
	}
}
