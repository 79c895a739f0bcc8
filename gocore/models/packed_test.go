package models

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"axlm/mlxc"
)

// member is a request among others: how far it is in its prompt and its text.
type member struct {
	*runner
	prompt, truth, text []int32
	filled              int
}

// turn is what a member does in one forward: the ids that it feeds, and how
// many of them are drafts.
type turn struct {
	*member
	ids    []int32
	drafts int
	logits int
}

// next is a random turn: some of the prompt, a token, or a token with drafts.
func (m *member) next(random *rand.Rand) turn {
	if left := len(m.prompt) - 1 - m.filled; left > 0 {
		n := 1 + random.IntN(left)
		return turn{member: m, ids: m.prompt[m.filled : m.filled+n]}
	}
	done := len(m.text) - len(m.prompt)
	drafts := random.IntN(min(6, len(m.truth)-done))
	ids := append(slices.Clone(m.text[len(m.text)-1:]), m.truth[done:done+drafts]...)
	if spoiled := random.IntN(drafts + 1); spoiled > 0 {
		ids[spoiled] = (ids[spoiled] + 1) % nanoVocab
	}
	return turn{member: m, ids: ids, drafts: drafts, logits: len(ids)}
}

// take ends a turn with what the model chose after each of its ids.
func (t turn) take(chosen []int32) {
	if t.logits == 0 {
		t.filled += len(t.ids)
		return
	}
	accepted := 0
	for accepted < t.drafts && t.ids[accepted+1] == chosen[accepted] {
		accepted++
	}
	t.rollback(accepted + 1)
	t.text = append(t.text, chosen[:accepted+1]...)
}

// forward runs members' turns in one forward.
func forward(t *testing.T, s *mlxc.Scope, m Model, turns []turn) {
	t.Helper()
	s.Reset()
	var ids []int32
	var in Input
	wanted := 0
	for _, turn := range turns {
		turn.cache.Checkpoint()
		ids = append(ids, turn.ids...)
		in.Spans = append(in.Spans, Span{Cache: turn.cache, Tokens: len(turn.ids), Logits: turn.logits})
		wanted += turn.logits
	}
	in.IDs = s.FromInt32s(ids, 1, len(ids))
	logits := m.Forward(s, in)
	var chosen []uint32
	if wanted > 0 {
		out := s.Keep(s.Reshape(s.ArgMax(logits, -1, false), -1))
		defer out.Free()
		if err := mlxc.Eval(out); err != nil {
			t.Fatal(err)
		}
		var err error
		if chosen, err = out.Uint32s(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	s.Close()
	if len(chosen) != wanted {
		t.Fatalf("logits of %d tokens, want %d", len(chosen), wanted)
	}
	for _, turn := range turns {
		own := make([]int32, turn.logits)
		for i := range own {
			own[i] = int32(chosen[i])
		}
		chosen = chosen[turn.logits:]
		turn.take(own)
		if err := mlxc.Eval(turn.cache.Arrays()...); err != nil {
			t.Fatal(err)
		}
	}
}

// Requests of unequal lengths that share forwards at random, filling their
// prompts, decoding and verifying side by side, give the ids of their solo
// runs.
func TestPackedRequestsAreSoloRequests(t *testing.T) {
	all := maps.Clone(windowed)
	maps.Copy(all, qwens)
	for name, nano := range all {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			m := mustBuild(t, s, nano())
			random := rand.New(rand.NewPCG(5, 5))
			var members []*member
			for i, length := range []int{1, 20, 7, 33} {
				prompt, truth := variedText(t, s, m, random, length, 30)
				r := newRunner(t, s, m, i%2 == 1)
				members = append(members, &member{runner: r, prompt: prompt, truth: truth, text: slices.Clone(prompt)})
			}
			for {
				var turns []turn
				busy := 0
				for _, m := range members {
					if len(m.text) < len(m.prompt)+len(m.truth) {
						busy++
						if random.IntN(4) > 0 {
							turns = append(turns, m.next(random))
						}
					}
				}
				if busy == 0 {
					break
				}
				if len(turns) > 0 {
					random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
					forward(t, s, m, turns)
				}
			}
			for i, m := range members {
				if got := m.text[len(m.prompt):]; !slices.Equal(got, m.truth) {
					t.Errorf("request %d gives\n%v, want\n%v", i, got, m.truth)
				}
			}
		})
	}
}
