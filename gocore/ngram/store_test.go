package ngram

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func historyOf(tokens []int32) *History {
	h := NewHistory(1 << 16)
	h.Append(tokens...)
	return h
}

func sharedDraft(s *store, most int, tail ...int32) []int32 {
	return drafted(newSharedProposer(DefaultConfig(), s), historyOf(tail), most)
}

func TestStoreContinuesFinishedTexts(t *testing.T) {
	s := newStore(1 << 20)
	s.add(historyOf(cycle(100, 100)))
	if got := sharedDraft(s, 4, 900, 20, 21, 22); !slices.Equal(got, []int32{23, 24, 25, 26}) {
		t.Errorf("got %v", got)
	}
	if got := sharedDraft(s, 4, 1, 3, 5); len(got) != 0 {
		t.Errorf("never seen: %v", got)
	}
}

func TestStoreStopsAtBorders(t *testing.T) {
	s := newStore(1 << 20)
	s.add(historyOf([]int32{1, 2, 3, 4, 5, 6}))
	s.add(historyOf([]int32{11, 12, 13, 14, 15, 16}))
	if got := sharedDraft(s, 8, 2, 3, 4); !slices.Equal(got, []int32{5, 6}) {
		t.Errorf("the first text ends after 6: %v", got)
	}
	if got := sharedDraft(s, 8, 4, 5, 6); len(got) != 0 {
		t.Errorf("beyond the first text: %v", got)
	}
	if got := sharedDraft(s, 8, 12, 13, 14); !slices.Equal(got, []int32{15, 16}) {
		t.Errorf("the second text: %v", got)
	}
}

func TestStoreEvictsTheOldest(t *testing.T) {
	s := newStore(firstWindow * bytesPerPosition) // 1024 positions
	for i := range int32(10) {
		text := cycle(200, 200)
		for j := range text {
			text[j] += 1000 * i
		}
		s.add(historyOf(text))
	}
	if got := sharedDraft(s, 2, 9050, 9051, 9052); !slices.Equal(got, []int32{9053, 9054}) {
		t.Errorf("the newest text: %v", got)
	}
	if got := sharedDraft(s, 2, 50, 51, 52); len(got) != 0 {
		t.Errorf("the oldest text is still there: %v", got)
	}
	if st := s.stats(); st.Texts != 10 || st.Tokens > 1024 || st.Bytes > firstWindow*bytesPerPosition {
		t.Errorf("%+v", st)
	}
	if newStore(100) != nil {
		t.Error("a store of 100 bytes")
	}
}

// TestStoreKeepsConversationsOnce adds the growing texts of a conversation's turns.
func TestStoreKeepsConversationsOnce(t *testing.T) {
	s := newStore(1 << 20)
	rng := rand.New(rand.NewPCG(8, 8))
	var text []int32
	for range 20 {
		for range 500 {
			text = append(text, rng.Int32N(50000))
		}
		s.add(historyOf(text))
	}
	if st := s.stats(); st.Tokens > len(text)+20*(2*maxMatch+1) {
		t.Errorf("%d tokens stored for a conversation of %d", st.Tokens, len(text))
	}
	for _, at := range []int{100, 499, 500, 530, 5000, 9900} {
		if got := sharedDraft(s, 4, text[at-10:at]...); !slices.Equal(got, text[at:at+4]) {
			t.Errorf("at %d: %v, want %v", at, got, text[at:at+4])
		}
	}
	before := s.stats().Tokens
	s.add(historyOf(text))
	if after := s.stats().Tokens; after > before+2*maxMatch+1 {
		t.Errorf("the same text again took %d tokens", after-before)
	}
}

// TestStoreConcurrently drafts while texts are added; run with -race it finds unguarded state.
func TestStoreConcurrently(t *testing.T) {
	shared := mustShared(t, DefaultConfig())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for round := range 5 {
				s, err := New(DefaultConfig(), shared)
				if err != nil {
					t.Error(err)
					return
				}
				text := prose(uint64(g), 3000)
				s.Observe(text[:2000]...)
				for i := 2000; i < 2300; i++ {
					d := s.Plan(16)
					s.Observe(text[i])
					s.Result(d, 0, 0.01)
				}
				s.Finish()
				if st := shared.Stats(); st.Requests < round {
					t.Errorf("%d requests", st.Requests)
				}
			}
		})
	}
	wg.Wait()
	if st := shared.Stats(); st.Requests != 40 || st.Steps != 40*300 {
		t.Errorf("%d requests, %d steps", st.Requests, st.Steps)
	}
}
