package scheduler

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var record = flag.Bool("record", false, "record the journal in testdata again")

// recorded is a run of the simulated engine: its journal and its plans' bytes.
func recorded(t *testing.T, seed uint64) (journal, plans []byte) {
	t.Helper()
	var b bytes.Buffer
	r, err := Record(small(), &b)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(&tap{r, &plans}, r.Scheduler, seed, 40000)
	w.run(t, 1500)
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return b.Bytes(), plans
}

type tap struct {
	*Recorder
	plans *[]byte
}

func (p *tap) Next(b Budget) *Plan {
	plan := p.Recorder.Next(b)
	*p.plans = plan.AppendBinary(*p.plans)
	return plan
}

func replayed(from io.Reader) (plans []byte, err error) {
	_, err = Replay(from, func(p *Plan) error { plans = p.AppendBinary(plans); return nil })
	return plans, err
}

func TestReplayGivesTheSamePlans(t *testing.T) {
	journal, plans := recorded(t, 5)
	again, err := replayed(bytes.NewReader(journal))
	if err != nil || !bytes.Equal(plans, again) {
		t.Fatalf("%d bytes of plans, replayed %d: %v", len(plans), len(again), err)
	}
	part, err := replayed(bytes.NewReader(journal[:len(journal)/2+1]))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(plans, part) || len(part) == 0 {
		t.Errorf("half a journal: %d bytes of plans, %v", len(part), err)
	}
	if _, err := replayed(strings.NewReader("something else")); err == nil {
		t.Error("something else was replayed")
	}
}

// TestRecordedJournal holds plans to what they were when the journal in testdata
// was recorded. A change of policy records it again, with -record.
func TestRecordedJournal(t *testing.T) {
	file, golden := filepath.Join("testdata", "journal"), filepath.Join("testdata", "plans.sha256")
	if *record {
		journal, plans := recorded(t, 7)
		sum := fmt.Sprintf("%x\n", sha256.Sum256(plans))
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, journal, 0o644), os.WriteFile(golden, []byte(sum), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	journal, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	plans, err := replayed(bytes.NewReader(journal))
	if got := fmt.Sprintf("%x\n", sha256.Sum256(plans)); err != nil || got != string(want) {
		t.Errorf("plans hash to %s, recorded %s (%v)", got, want, err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(journalMagic + "\x20\x20\x20"))
	if journal, err := os.ReadFile(filepath.Join("testdata", "journal")); err == nil {
		f.Add(journal[:2000])
	}
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = replayed(bytes.NewReader(data)) })
}
