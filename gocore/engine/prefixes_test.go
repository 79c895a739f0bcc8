package engine

import (
	"fmt"
	"slices"
	"testing"

	"axlm/gocore/sampling"
)

// A request whose text begins as another's began goes on from there, with its
// own tokens: turns of a conversation, prompts that share a beginning, prompts
// that part in the midst of a block.
func TestKeptPrefixes(t *testing.T) {
	for kind, m := range caching(t) {
		base := prompt(80, 700)
		tail := func(seed uint64, at, n int) []int32 { return append(slices.Clone(base[:at]), prompt(seed, n)...) }
		texts := [][]int32{base, tail(81, 700, 40), tail(82, 512, 9), tail(83, 300, 100), tail(84, 263, 3), base[:256], base[:257], base[:17], base}
		hot := Options{MaxTokens: 12, PrefillStepSize: 200, Sampler: &sampling.Sampler{Temp: 1.3}}
		plain := Options{MaxTokens: 12, PrefillStepSize: 200}
		var want [][]int32
		for i, text := range texts {
			o := plain
			if i%2 == 1 {
				o = hot
			}
			want = append(want, ids(seeded(t, m, text, o, uint32(i))))
		}
		if err := m.KeepPrefixes(1 << 26); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			for i, text := range texts {
				o := plain
				if i%2 == 1 {
					o = hot
				}
				if round == 1 {
					o.Speculation = forced(3)
				}
				r, err := m.Generate(text, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Reseed(sampling.Key{0, uint32(i)}); err != nil {
					t.Fatal(err)
				}
				equal(t, fmt.Sprintf("%s, text %d, round %d", kind, i, round), ids(collect2(t, r, 12)), want[i])
				st, err := r.Stats()
				if err != nil {
					t.Fatal(err)
				}
				if least := (len(text) - 1) / 16 * 16; round == 1 && st.ReusedTokens != least {
					t.Errorf("%s, text %d: %d tokens reused, want %d", kind, i, st.ReusedTokens, least)
				}
				r.Close()
			}
		}
		if err := m.KeepPrefixes(0); err != nil {
			t.Fatal(err)
		}
		equal(t, kind+" without prefixes", ids(seeded(t, m, base, plain, 0)), want[0])
	}
}

// What is kept stays within its budget, and gives way to requests.
func TestKeptPrefixesGiveWay(t *testing.T) {
	for kind, m := range tight(t, 3) {
		if err := m.KeepPrefixes(1 << 30); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			text := prompt(uint64(90+i), 200)
			o := Options{MaxTokens: 10, PrefillStepSize: 64}
			first := ids(seeded(t, m, text, o, 0))
			equal(t, fmt.Sprintf("%s, text %d again", kind, i), ids(seeded(t, m, text, o, 0)), first)
		}
		_ = m.engine.do(func() error {
			st := m.engine.planner.Stats()
			if st.Reused == 0 || st.KeptBytes > st.Budget || st.Reclaimed == 0 || m.kept.index.Bytes() != st.KeptBytes {
				t.Errorf("%s: %+v, %d bytes kept", kind, st, m.kept.index.Bytes())
			}
			return nil
		})
	}
}
