package ngram

import (
	"slices"
	"testing"
)

func TestSuffixFollowsLongestMatch(t *testing.T) {
	p := newSuffix(DefaultConfig())
	// 3 4 5 is followed by 6 after 1 2, by 9 lately.
	h := fed(p, 1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 5, 9, 8, 3, 4, 5, 9, 1, 2, 3, 4, 5)
	got := drafted(p, h, 3)
	if len(got) == 0 || got[0] != 6 {
		t.Errorf("after 1 2 3 4 5: %v", got)
	}
}

func TestSuffixFollowsTheMostFrequent(t *testing.T) {
	p := newSuffix(DefaultConfig())
	h := fed(p, 1, 2, 3, 4, 50, 1, 2, 3, 4, 60, 1, 2, 3, 4, 50, 1, 2, 3, 4, 70, 1, 2, 3, 4)
	if got := drafted(p, h, 1); !slices.Equal(got, []int32{50}) {
		t.Errorf("50 came twice: %v", got)
	}
	h = fed(newSuffix(DefaultConfig()), 1)
	q := newSuffix(DefaultConfig())
	h = fed(q, 0, 1, 2, 3, 50, 0, 1, 2, 3, 60, 0, 1, 2, 3)
	if got := drafted(q, h, 1); !slices.Equal(got, []int32{60}) {
		t.Errorf("60 came last: %v", got)
	}
}

func TestSuffixRunsRoundACycle(t *testing.T) {
	p := newSuffix(DefaultConfig())
	h := fed(p, cycle(5, 23)...)
	got := drafted(p, h, 32)
	if len(got) != 32 {
		t.Fatalf("%d tokens", len(got))
	}
	for i, token := range got {
		if token != int32((23+i)%5) {
			t.Fatalf("token %d of %v", i, got)
		}
	}
}

func TestSuffixBoundsAndSupport(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MatchFactor = 2
	long := append(cycle(100, 100), 0, 1, 2, 3) // a match of 4
	p := newSuffix(cfg)
	if got := drafted(p, fed(p, long...), 32); len(got) != 8 {
		t.Errorf("factor 2 of 4 matched tokens: %d drafts", len(got))
	}
	cfg.MatchFactor, cfg.MinConfidence = 8, 0.9
	p = newSuffix(cfg)
	if got := drafted(p, fed(p, long...), 32); len(got) != 0 {
		t.Errorf("a match of 4 with confidence 0.9: %v", got)
	}
	cfg = DefaultConfig()
	cfg.MinSupport = 2
	p = newSuffix(cfg)
	h := fed(p, long...)
	if got := drafted(p, h, 32); len(got) != 0 {
		t.Errorf("seen once before: %v", got)
	}
	feed(h, p, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) // now 16 tokens match
	if got := drafted(p, h, 32); len(got) == 0 || got[0] != 16 {
		t.Errorf("16 matched tokens are evidence enough: %v", got)
	}
}

func TestConfidenceGrowsWithTheMatch(t *testing.T) {
	p := newSuffix(DefaultConfig())
	h := fed(p, cycle(1000, 1000)...)
	last := float32(0)
	for i := range 60 {
		feed(h, p, int32(i))
		var dst [1]Draft
		if n := p.Draft(h, dst[:]); n == 0 {
			if i >= 2 {
				t.Fatalf("no draft after %d matching tokens", i+1)
			}
			continue
		}
		if dst[0].Token != int32(i+1) || dst[0].P <= last || dst[0].P >= 1 {
			t.Fatalf("after %d matching tokens: %+v, before %v", i+1, dst[0], last)
		}
		last = dst[0].P
	}
}

// naiveSuffix is what the suffix proposer must say, by looking at every position of the text that is held.
func naiveSuffix(text []int32, start int, most int, rules followRules) []Draft {
	type occ struct{ pos, length int }
	n := len(text)
	match := func(p int) int {
		l := 0
		for l < maxMatch && p-1-l >= start && text[p-1-l] == text[n-1-l] {
			l++
		}
		return l
	}
	var found []occ
	longest := 0
	for _, k := range keyLengths {
		whole := 0
		for p := n - 1; p > start && len(found) < maxOccurring && whole < enoughWhole; p-- {
			if l := match(p); l >= k {
				found = append(found, occ{p, l})
				longest = max(longest, l)
				if l == maxMatch {
					whole++
				}
			}
		}
		if len(found) > 0 {
			break
		}
	}
	found = slices.DeleteFunc(found, func(o occ) bool { return 2*o.length < longest })
	var out []Draft
	product := float32(1)
	for i := 0; i < min(most, rules.factor*longest); i++ {
		virtual := slices.Clone(text)
		for _, d := range out {
			virtual = append(virtual, d.Token)
		}
		var all, high float32
		var best int32
		sums, votes, lengths := map[int32]float32{}, map[int32]int{}, map[int32]int{}
		for _, o := range found {
			tok := virtual[o.pos+i]
			all += weight(o.length)
			sums[tok] += weight(o.length)
			votes[tok]++
			lengths[tok] = max(lengths[tok], o.length)
		}
		for _, o := range found { // newest first, so that of equals the newest wins
			if tok := virtual[o.pos+i]; sums[tok] > high {
				high, best = sums[tok], tok
			}
		}
		if high == 0 || votes[best]+lengths[best]/16 < rules.support {
			break
		}
		p := high / all * (1 - 2/float32(lengths[best]+i+1))
		if product *= p; product < rules.bound {
			break
		}
		out = append(out, Draft{best, p})
		found = slices.DeleteFunc(found, func(o occ) bool { return virtual[o.pos+i] != best })
	}
	return out
}

// FuzzSuffix compares the proposer with naiveSuffix over texts of a small alphabet, with truncations. Texts are short
// enough that no search ends for the number of links walked.
func FuzzSuffix(f *testing.F) {
	f.Add([]byte("abcabcabcabcabc"), uint8(32), uint8(1))
	f.Add([]byte("the cat sat on the mat, the cat sat on the hat\xff\x05 the cat sat"), uint8(16), uint8(2))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint8(8), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, most, support uint8) {
		cfg := DefaultConfig()
		cfg.MinSupport = int(support%3) + 1
		p := newSuffix(cfg)
		h := NewHistory(64) // a window shorter than the texts
		var text []int32
		var dst [MaxDraft]Draft
		for i := 0; i < len(data) && i < 400; i++ {
			if data[i] == 0xff && i+1 < len(data) {
				i++
				n := max(len(text)-int(data[i]), 0)
				if n < len(text) {
					p.Truncate(h, n)
					h.Truncate(n)
					text = text[:n]
				}
				continue
			}
			tok := int32(data[i] % 5)
			feed(h, p, tok)
			text = append(text, tok)
			k := min(int(most), MaxDraft)
			got := dst[:p.Draft(h, dst[:k])]
			want := naiveSuffix(text, h.Start(), k, p.rules)
			if !slices.Equal(got, want) {
				t.Fatalf("after %v (from %d): %v, want %v", text, h.Start(), got, want)
			}
		}
	})
}
