package ngram

import (
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMemoryIsBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxBytes, cfg.SharedBytes = 2<<20, 1<<20
	shared := mustShared(t, cfg)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	const tokens = 1_000_000
	before := heap()
	s := mustNew(t, cfg, shared)
	var chunk [1000]int32
	for range tokens / len(chunk) {
		for i := range chunk {
			chunk[i] = rng.Int32N(150_000)
		}
		s.Observe(chunk[:]...)
	}
	if s.Len() != tokens {
		t.Fatalf("%d tokens", s.Len())
	}
	if b := s.Stats().Bytes; b > cfg.MaxBytes || b < cfg.MaxBytes/4 {
		t.Errorf("%d bytes by its own count, the bound is %d", b, cfg.MaxBytes)
	}
	if b := heap() - before; b > cfg.MaxBytes+200<<10 {
		t.Errorf("%d bytes of heap, the bound is %d", b, cfg.MaxBytes)
	}
	s.Finish()
	if b := shared.Stats().Store.Bytes; b > cfg.SharedBytes {
		t.Errorf("the store has %d bytes, its bound is %d", b, cfg.SharedBytes)
	}
	// What was seen last still works.
	s.Observe(chunk[:]...)
	s.Observe(chunk[:20]...)
	for range 3 {
		plainStep(s, 1)
	}
	s.Truncate(tokens + len(chunk) + 20)
	if got := drafted(s.proposers[0], s.history, 4); !slices.Equal(got, chunk[20:24]) {
		t.Errorf("%v, want %v", got, chunk[20:24])
	}
	runtime.KeepAlive(s)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxBytes = 256 << 10 // full soon
	s := mustNew(t, cfg, nil)
	text := prose(1, 60_000)
	s.Observe(text...)
	i := 0
	if n := testing.AllocsPerRun(2000, func() {
		d := s.Plan(16)
		i++
		s.Observe(text[i%len(text)])
		s.Result(d, 0, 0.01)
	}); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func TestStatsAsJSON(t *testing.T) {
	s := mustNew(t, DefaultConfig(), nil)
	s.Observe(cycle(5, 50)...)
	for range 30 {
		plainStep(s, int32(s.Len()%5))
	}
	text, err := json.Marshal(s.Stats())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"tokens", "steps", "draft_steps", "drafted", "accepted", "padded_rows", "committed", "seconds",
		"no_draft", "by_depth", "by_position", "by_proposer", "gate", "ema", "cost", "widths", "probe_interval", "bytes"} {
		if !strings.Contains(string(text), `"`+key+`":`) {
			t.Errorf("no key %s in %s", key, text)
		}
	}
	if text, err = json.Marshal(s.shared.Stats()); err != nil || !strings.Contains(string(text), `"requests":0`) {
		t.Errorf("%s, %v", text, err)
	}
}
