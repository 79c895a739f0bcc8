package ngram

import "testing"

// A request with SharedBytes 0 on a model that has a store leaves it alone.
func TestPrivateRequestLeavesTheStoreAlone(t *testing.T) {
	shared, err := NewShared(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	finish := func(cfg Config) *Speculator {
		s, err := New(cfg, shared)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 64 {
			s.Observe(int32(i))
		}
		s.Finish()
		return s
	}
	private := DefaultConfig()
	private.SharedBytes = 0
	for _, p := range finish(private).proposers {
		if p.Name() == "shared" {
			t.Error("a private request reads the store")
		}
	}
	if n := shared.Stats().Store.Texts; n != 0 {
		t.Errorf("the store holds %d texts after a private request", n)
	}
	finish(DefaultConfig())
	if n := shared.Stats().Store.Texts; n != 1 {
		t.Errorf("the store holds %d texts, want 1", n)
	}
}
