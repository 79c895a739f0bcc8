package ngram

import (
	"slices"
	"testing"
)

// FuzzObserveDraft reads the bytes as calls: tokens, truncations, plans, results in and out of order.
func FuzzObserveDraft(f *testing.F) {
	f.Add([]byte("abcabcabc\xf0\x10\xf1\x01\xf2\x05abc\xf0\x20"), uint8(0))
	f.Add([]byte("aaaaaaaa\xf0\xff\xf1\xff\xf2\x00aaaa\xf0\x01"), uint8(1))
	f.Add([]byte("\xf0\x00\xf1\x00\xf2\x00\xf3\x09\xf0\x08"), uint8(2))
	f.Add([]byte("the cat sat\xf3\x03 the cat sat\xf0\x09\xf1\x02\xf4\x00 the cat sat"), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		cfg := DefaultConfig()
		cfg.MaxBytes, cfg.SharedBytes = minBytes, 32<<10
		cfg.Adaptive = kind&1 == 0
		if kind&2 != 0 {
			cfg = cfg.ForRecurrent()
		}
		cfg.MaxDraftTokens = int(kind>>2) % (MaxDraft + 1)
		shared, err := NewShared(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, shared)
		if err != nil {
			t.Fatal(err)
		}
		var text, ever []int32 // the text, and all that was ever part of one
		var d Decision
		check := func(d Decision, limit int) {
			if len(d.Drafts) > max(min(limit, cfg.depth()), 0) {
				t.Fatalf("%d drafts, asked for %d", len(d.Drafts), limit)
			}
			if d.Width < len(d.Drafts)+1 || d.Width > MaxWidth || len(d.Drafts) == 0 && d.Width != 1 {
				t.Fatalf("%d drafts at %d rows", len(d.Drafts), d.Width)
			}
			if (d.Reason == ReasonNone) != (len(d.Drafts) > 0) {
				t.Fatalf("%d drafts, reason %q", len(d.Drafts), d.Reason)
			}
			known := text
			if d.Proposer == NameShared {
				known = ever
			}
			for _, x := range d.Drafts {
				if !slices.Contains(known, x) {
					t.Fatalf("draft %d by %s was never seen", x, d.Proposer)
				}
			}
		}
		arg := func(i *int) int {
			*i++
			if *i < len(data) {
				return int(data[*i])
			}
			return 0
		}
		for i := 0; i < len(data); i++ {
			switch b := data[i]; b {
			case 0xf0:
				limit := arg(&i) - 4
				d = s.Plan(limit)
				check(d, limit)
			case 0xf1:
				a := arg(&i)
				s.Result(d, a%8-1, float64(a)/100-0.1)
			case 0xf2:
				n := arg(&i) - 4
				s.Truncate(n)
				text = text[:min(max(n, 0), len(text))]
			case 0xf3:
				d = s.PlanAhead(arg(&i))
				check(d, 0)
			case 0xf4: // the next request of the model
				s.Finish()
				if s, err = New(cfg, shared); err != nil {
					t.Fatal(err)
				}
				text, d = nil, Decision{}
			case 0xf5:
				n := max(len(text)-arg(&i)%8, 0)
				s.Truncate(n)
				text = text[:n]
			default:
				s.Observe(int32(b % 16))
				text = append(text, int32(b%16))
				ever = append(ever, int32(b%16))
			}
			if s.Len() != len(text) {
				t.Fatalf("length %d, want %d", s.Len(), len(text))
			}
		}
		s.Stats()
		shared.Stats()
	})
}
