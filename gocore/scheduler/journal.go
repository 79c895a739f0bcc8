package scheduler

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// journalMagic begins a journal; its digit is the format's version.
const journalMagic = "axlm-journal-2\n"

const nextKind = 0 // in a journal, a call of Next

// Recorder is a scheduler that writes down what it is told. An error in writing
// ends the journal, never the scheduling.
type Recorder struct {
	*Scheduler
	to  io.Writer
	buf []byte
	err error
}

// Record returns a scheduler whose events and calls of Next go to w.
func Record(cfg Config, w io.Writer) (*Recorder, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	r := &Recorder{Scheduler: s, to: w}
	b := writer{[]byte(journalMagic)}
	b.int(int64(cfg.Running), int64(cfg.PrefillStep), int64(cfg.Headroom))
	r.write(b.to)
	return r, nil
}

// Err is what ended the journal, if anything.
func (r *Recorder) Err() error { return r.err }

func (r *Recorder) write(b []byte) {
	if r.err == nil {
		_, r.err = r.to.Write(b)
	}
}

// Apply is the scheduler's; an event that it refuses is not kept.
func (r *Recorder) Apply(e Event) error {
	if err := r.Scheduler.Apply(e); err != nil {
		return err
	}
	r.buf = AppendEvent(r.buf[:0], e)
	r.write(r.buf)
	return nil
}

// Next is the scheduler's.
func (r *Recorder) Next(b Budget) *Plan {
	w := writer{r.buf[:0]}
	w.uint(nextKind)
	w.int(int64(b.Tokens))
	r.buf = w.to
	r.write(r.buf)
	return r.Scheduler.Next(b)
}

// AppendEvent appends an event's form in a journal.
func AppendEvent(to []byte, e Event) []byte {
	w := writer{to}
	w.uint(uint64(e.Kind), e.ID, uint64(e.Class), bit(e.Solo)|bit(e.Force)<<1, uint64(len(e.Odds)))
	for _, n := range [...]int{e.N, e.Max, e.Reused, e.Accepted, e.Step, e.Width, e.Window, e.Tokens} {
		w.int(int64(n))
	}
	w.int(e.Bytes, e.WindowBytes, e.StateBytes, e.GrowBytes, e.Nanos)
	for _, o := range e.Odds {
		w.uint(uint64(o))
	}
	return w.to
}

// Replay runs a journal on a new scheduler and hands each plan to see. A journal
// that ends inside an entry gives io.ErrUnexpectedEOF after all entries before.
func Replay(from io.Reader, see func(*Plan) error) (*Scheduler, error) {
	r := reader{in: bufio.NewReader(from)}
	magic := make([]byte, len(journalMagic))
	if _, err := io.ReadFull(r.in, magic); err != nil || string(magic) != journalMagic {
		return nil, fmt.Errorf("scheduler: not a journal of this version")
	}
	cfg := Config{Running: r.small(), PrefillStep: r.small(), Headroom: r.small()}
	if r.err != nil {
		return nil, fmt.Errorf("scheduler: reading a journal: %w", r.err)
	}
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := r.in.Peek(1); errors.Is(err, io.EOF) {
			return s, nil
		}
		if kind := r.uint(); kind == nextKind && r.err == nil {
			b := Budget{Tokens: r.small()}
			if r.err == nil {
				r.err = see(s.Next(b))
			}
		} else if e := r.event(kind); r.err == nil {
			r.err = s.Apply(e)
		}
		if r.err != nil {
			return s, fmt.Errorf("scheduler: replaying a journal: %w", r.err)
		}
	}
}

// reader reads numbers up to the first error.
type reader struct {
	in  *bufio.Reader
	err error
}

func (r *reader) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) uint() uint64 {
	v, err := binary.ReadUvarint(r.in)
	if err != nil {
		r.fail(err)
	}
	return v
}

func (r *reader) int() int64 {
	v, err := binary.ReadVarint(r.in)
	if err != nil {
		r.fail(err)
	}
	return v
}

func (r *reader) small() int { return int(r.int()) }

func (r *reader) event(kind uint64) Event {
	e := Event{Kind: Kind(min(kind, 255)), ID: r.uint(), Class: uint32(r.uint())}
	flags, odds := r.uint(), r.uint()
	e.Solo, e.Force = flags&1 != 0, flags&2 != 0
	for _, n := range [...]*int{&e.N, &e.Max, &e.Reused, &e.Accepted, &e.Step, &e.Width, &e.Window, &e.Tokens} {
		*n = r.small()
	}
	e.Bytes, e.WindowBytes, e.StateBytes, e.GrowBytes, e.Nanos = r.int(), r.int(), r.int(), r.int(), r.int()
	if odds >= MaxWidth {
		r.fail(fmt.Errorf("%w: %d odds", ErrValue, odds))
		return e
	}
	for range odds {
		e.Odds = append(e.Odds, uint32(r.uint()))
	}
	return e
}
