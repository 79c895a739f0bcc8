package ngram

import "testing"

func mustNew(t testing.TB, cfg Config, shared *Shared) *Speculator {
	t.Helper()
	s, err := New(cfg, shared)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustShared(t testing.TB, cfg Config) *Shared {
	t.Helper()
	s, err := NewShared(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
