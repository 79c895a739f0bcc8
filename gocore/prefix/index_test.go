package prefix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"axlm/gocore/blocks"
)

func text(n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(r.IntN(50000))
	}
	return all
}

func TestLongestCheckpointIsFound(t *testing.T) {
	x := NewIndex(1 << 20)
	p := text(600, 1)
	for i, end := range Checkpoints(0, len(p)) {
		if !x.Insert("k", p[:end], uint64(i+1), 1000) {
			t.Fatal("not inserted")
		}
	}
	for _, c := range []struct{ n, tokens int }{{600, 592}, {592, 512}, {593, 592}, {513, 512}, {512, 256}, {257, 256}, {256, 0}, {3, 0}, {0, 0}} {
		m := x.Lookup("k", p[:c.n])
		if m.Tokens != c.tokens || len(m.Payloads) != (c.tokens+255)/256 {
			t.Errorf("%d tokens of %d are known: %+v", m.Tokens, c.n, m)
		}
		x.Release(&m)
	}
	if m := x.Lookup("other", p); m.Tokens != 0 {
		t.Error("a salt sees another's")
	}
	changed := slices.Clone(p)
	changed[300]++
	if m := x.Lookup("k", changed); m.Tokens != 256 {
		t.Errorf("%d tokens of a changed text are known", m.Tokens)
	}
}

func TestCheckpoints(t *testing.T) {
	for _, c := range []struct {
		from, n int
		want    string
	}{{0, 1, "[]"}, {0, 16, "[]"}, {0, 17, "[16]"}, {0, 257, "[256]"}, {0, 600, "[256 512 592]"}, {256, 600, "[512 592]"}, {592, 600, "[]"}, {250, 700, "[256 512 688]"}} {
		if got := fmt.Sprint(Checkpoints(c.from, c.n)); got != c.want {
			t.Errorf("from %d of %d: %s, want %s", c.from, c.n, got, c.want)
		}
	}
}

// TestRandomUse compares the index with a plain list of what is kept.
func TestRandomUse(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	const budget = 5000
	x := NewIndex(budget)
	type entry struct {
		key   string
		bytes int64
	}
	kept := map[uint64]entry{}
	key := func(salt string, tokens []int32) string { return fmt.Sprint(salt, tokens) }
	drop := func() {
		for _, id := range x.Dropped() {
			if _, ok := kept[id]; !ok {
				t.Fatalf("payload %d was dropped, but is not kept", id)
			}
			delete(kept, id)
		}
	}
	var held []Match
	for id := uint64(1); id < 20000; id++ {
		salt := []string{"", "a", "b"}[r.IntN(3)]
		p := make([]int32, blocks.Size*(1+r.IntN(5))+1)
		for i := range p {
			p[i] = int32(i / blocks.Size * r.IntN(2))
			if i%blocks.Size != 0 {
				p[i] = p[i-1]
			}
		}
		if r.IntN(2) == 0 {
			bytes := int64(r.IntN(1500))
			whole := p[:len(p)-1]
			if x.Insert(salt, whole, id, bytes) {
				kept[id] = entry{key(salt, whole), bytes}
			}
			drop()
		} else {
			m := x.Lookup(salt, p)
			want := 0
			for _, e := range kept {
				for end := blocks.Size; end < len(p); end += blocks.Size {
					if e.key == key(salt, p[:end]) {
						want = max(want, end)
					}
				}
			}
			if m.Tokens != want || want > 0 && kept[m.Payload].key != key(salt, p[:want]) {
				t.Fatalf("%d tokens known, want %d", m.Tokens, want)
			}
			held = append(held, m)
		}
		if len(held) > 3 || r.IntN(3) == 0 && len(held) > 0 {
			x.Release(&held[0])
			held = held[1:]
		}
		if r.IntN(20) == 0 {
			x.Shrink(int64(r.IntN(budget)))
			drop()
		}
		sum := int64(0)
		for _, e := range kept {
			sum += e.bytes
		}
		if sum != x.Bytes() || sum > budget {
			t.Fatalf("%d bytes kept, %d told", sum, x.Bytes())
		}
		for _, m := range held {
			for _, id := range m.Payloads {
				if _, ok := kept[id]; !ok {
					t.Fatal("a payload in use was dropped")
				}
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("abcabc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := NewIndex(300)
		for i, c := range data {
			p := slices.Repeat([]int32{int32(c & 3)}, int(c>>2)*blocks.Size/4)
			if i%2 == 0 {
				x.Insert("", p, uint64(i+1), int64(c))
			} else if m := x.Lookup("", p); m.Tokens > 0 && (m.Tokens >= len(p) || m.Payload == 0) {
				t.Fatalf("%+v of %d tokens", m, len(p))
			} else {
				x.Release(&m)
			}
			if x.Bytes() > 300 {
				t.Fatal("over the budget")
			}
		}
	})
}
