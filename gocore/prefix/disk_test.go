package prefix

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func disk(t *testing.T, folder, model, engine string) *Disk {
	t.Helper()
	d, err := OpenDisk(folder, model, engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func content(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("state %d;", i)), 20000) }

func TestDiskSurvivesARestart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a[b]*")
	p := text(100, 1)
	for _, n := range []int{16, 64} {
		if err := disk(t, folder, "model", "1").Write("k", p[:n], content(n)); err != nil {
			t.Fatal(err)
		}
	}
	d := disk(t, folder, "model", "1")
	got, n := d.Longest("k", p, 0)
	if n != 64 || !bytes.Equal(got, content(64)) {
		t.Errorf("%d tokens, %d bytes", n, len(got))
	}
	if _, n := d.Longest("k", p[:64], 0); n != 16 {
		t.Errorf("%d tokens for a prompt of 64", n)
	}
	if _, n := d.Longest("k", p, 64); n != 0 {
		t.Errorf("%d tokens beyond 64", n)
	}
	if _, n := d.Longest("other", p, 0); n != 0 {
		t.Error("a salt sees another's")
	}
	for _, other := range []*Disk{disk(t, folder, "model", "2"), disk(t, folder, "other", "1"), disk(t, folder, "mode", "l1")} {
		if _, n := other.Longest("k", p, 0); n != 0 {
			t.Error("another model's state is read")
		}
	}
	if err := d.Trim(0); err != nil || d.Stats().Removed != 2 {
		t.Errorf("%+v: %v", d.Stats(), err)
	}
}

// TestDamagedFilesAreSkipped cuts the file at many places and changes its bytes.
func TestDamagedFilesAreSkipped(t *testing.T) {
	folder, p := t.TempDir(), text(32, 1)
	d := disk(t, folder, "model", "1")
	if err := d.Write("", p, content(1)); err != nil {
		t.Fatal(err)
	}
	path := d.path(d.head("", p))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tried := uint64(0)
	try := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, ok := d.Read("", p)
		if ok && !bytes.Equal(got, content(1)) {
			t.Fatal("a wrong state was read")
		}
		if !ok {
			tried++
		}
	}
	for n := 0; n < len(good); n += 1 + len(good)/40 {
		try(good[:n])
	}
	for i := 0; i < len(good); i += 1 + len(good)/100 {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		try(bad)
	}
	if st := d.Stats(); st.Damaged != tried || tried < 40 {
		t.Errorf("%d damaged, counted %+v", tried, st)
	}
	// A whole file of other tokens under this name.
	if err := d.Write("", text(32, 2), content(2)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.path(d.head("", text(32, 2))), path); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.Read("", p); ok || d.Stats().Foreign != 1 {
		t.Errorf("a foreign file: %+v", d.Stats())
	}
}

// TestKilledWhileWriting kills a process that writes without end; what is there
// afterwards is whole.
func TestKilledWhileWriting(t *testing.T) {
	if folder := os.Getenv("AXLM_TEST_PREFIX_WRITER"); folder != "" {
		d := disk(t, folder, "model", "1")
		for i := 0; ; i++ {
			if err := d.Write("", text(32, uint64(i%8)), content(i%8)); err != nil {
				t.Fatal(err)
			}
		}
	}
	folder := t.TempDir()
	for round := range 5 {
		c := exec.Command(os.Args[0], "-test.run=^TestKilledWhileWriting$")
		c.Env = append(os.Environ(), "AXLM_TEST_PREFIX_WRITER="+folder)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for wait := 0; wait < 500; wait++ { // until it writes
			if all, _ := filepath.Glob(filepath.Join(folder, "*"+diskExt)); len(all) > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Duration(10+7*round) * time.Millisecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		d := disk(t, folder, "model", "1")
		read := 0
		for i := range 8 {
			if got, ok := d.Read("", text(32, uint64(i))); ok {
				read++
				if !bytes.Equal(got, content(i)) {
					t.Fatal("a wrong state was read")
				}
			}
		}
		if st := d.Stats(); read == 0 || st.Damaged+st.Foreign > 0 {
			t.Errorf("%d read, %+v", read, st)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "*"+diskTemp)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := disk(t, t.TempDir(), "m", "1")
		if err := os.WriteFile(d.path(d.head("", text(16, 1))), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := d.Read("", text(16, 1)); ok {
			t.Fatal("a made-up file was believed")
		}
	})
}
