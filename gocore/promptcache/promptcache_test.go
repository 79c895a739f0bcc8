package promptcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"axlm/gocore/errs"

	"github.com/klauspost/compress/zstd"
)

func TestRoundTrip(t *testing.T) {
	empty := withHeader(map[string]any{}, nil)
	overhead := len(safetensors(1, 1_000_000)) - 2_000_000 // offsets of seven digits
	border := (frameBytes - overhead) / 2
	for name, content := range map[string][]byte{
		"no arrays":      empty,
		"one number":     safetensors(1, 1),
		"below a frame":  safetensors(1, border-1),
		"a frame":        safetensors(1, border),
		"above a frame":  safetensors(1, border+1),
		"several frames": safetensors(7, 700_001),
	} {
		t.Run(name, func(t *testing.T) {
			path := packedFile(t, content)
			got, err := unpack(t, path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, content) {
				t.Error("the content changed")
			}
			sizes, err := Measure(path)
			if want := (Sizes{int64(len(content)), int64(len(read(t, path)))}); err != nil || sizes != want {
				t.Errorf("Measure: %v, %v; want %v", sizes, err, want)
			}
		})
	}
}

func TestFramesAreIndependentAndSmall(t *testing.T) {
	content := safetensors(4, 900_000)
	path := packedFile(t, content)
	packed := read(t, path)
	frames, err := scan(bytes.NewReader(packed), int64(len(packed)), path)
	if err != nil {
		t.Fatal(err)
	}
	if want := (len(content) + frameBytes - 1) / frameBytes; len(frames) != want {
		t.Errorf("%d frames, want %d", len(frames), want)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	place := 0
	for i, f := range frames {
		var header zstd.Header
		if err := header.Decode(packed[f.offset:]); err != nil || !header.HasCheckSum || !header.HasFCS {
			t.Errorf("frame %d: %+v, %v; want a checksum and a size", i, header, err)
		}
		got, err := decoder.DecodeAll(packed[f.offset:f.offset+f.packed], nil)
		if err != nil || !bytes.Equal(got, content[place:place+len(got)]) {
			t.Errorf("frame %d alone: %v", i, err)
		}
		place += len(got)
	}
	if ratio := float64(len(packed)) / float64(len(content)); ratio > 0.9 {
		t.Errorf("packed to %.3f of its size; bfloat16 of one scale takes less than 0.9", ratio)
	}
}

func TestProgramReadsOurs(t *testing.T) {
	program := zstdProgram(t)
	content := safetensors(3, 800_000)
	got, err := exec.Command(program, "-d", "-c", packedFile(t, content)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Error("zstd -d gives another content")
	}
}

func TestReadsTheProgramsFiles(t *testing.T) {
	program := zstdProgram(t)
	content := safetensors(3, 800_000)
	from := write(t, "cache.safetensors", content)
	for name, flags := range map[string][]string{
		"default": {}, "fast, no checksum": {"--fast", "--no-check"}, "long": {"-9", "--long=27"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.safetensors.zst")
			if out, err := exec.Command(program, append(flags, "-q", from, "-o", path)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := unpack(t, path)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("equal: %v, %v", bytes.Equal(got, content), err)
			}
		})
	}
	t.Run("from a pipe", func(t *testing.T) {
		command := exec.Command(program, "-c")
		command.Stdin = bytes.NewReader(content)
		packed, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(t, write(t, "cache.safetensors.zst", packed))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("equal: %v, %v", bytes.Equal(got, content), err)
		}
	})
}

func zstdProgram(t *testing.T) string {
	program, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("the zstd program is not installed")
	}
	return program
}

func TestReadsOtherLayouts(t *testing.T) {
	content := safetensors(2, 900_000)
	skippable := append(binary.LittleEndian.AppendUint32([]byte{0x5A, 0x2A, 0x4D, 0x18}, 5), "hello"...)
	half := len(content) / 2
	for name, packed := range map[string][]byte{
		"one frame":             frameOf(content),
		"no size":               streamOf(content),
		"no size, two frames":   append(streamOf(content[:half]), streamOf(content[half:])...),
		"sizes here and there":  append(frameOf(content[:half]), streamOf(content[half:])...),
		"no checksums":          frameOf(content, zstd.WithEncoderCRC(false)),
		"skippable frames":      bytes.Join([][]byte{skippable, frameOf(content[:9]), skippable, frameOf(content[9:]), skippable}, nil),
		"an empty frame inside": bytes.Join([][]byte{frameOf(content[:9]), frameOf(nil, zstd.WithZeroFrames(true)), frameOf(content[9:])}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := unpack(t, write(t, "cache.safetensors.zst", packed))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("equal: %v, %v", bytes.Equal(got, content), err)
			}
		})
	}
}

func TestLongFrameIsStreamed(t *testing.T) {
	content := withHeader(map[string]any{"a": map[string]any{
		"dtype": "U8", "shape": []int{maxFrameBytes}, "data_offsets": []int{0, maxFrameBytes},
	}}, make([]byte, maxFrameBytes))
	path := write(t, "cache.safetensors.zst", frameOf(content))
	p, err := openPacked(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.file.Close()
	if p.parallel() {
		t.Error("a frame over the limit would be decoded in one piece")
	}
	got, err := unpack(t, path)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("equal: %v, %v", bytes.Equal(got, content), err)
	}
}

func TestTruncated(t *testing.T) {
	whole := read(t, packedFile(t, safetensors(3, 600_000)))
	streamed := streamOf(safetensors(1, 300_000))
	for _, packed := range [][]byte{whole, streamed} {
		for _, length := range []int{1, 3, 4, 5, 8, 17, 18, 100, len(packed) / 3, len(packed) / 2, len(packed) - 5, len(packed) - 1} {
			mustFail(t, packed[:length], "truncated")
		}
	}
	mustFail(t, nil, "empty (0 bytes)")
	frames, err := scan(bytes.NewReader(whole), int64(len(whole)), "")
	if err != nil {
		t.Fatal(err)
	}
	// Cut between two frames, only the safetensors header can tell.
	mustFail(t, whole[:frames[2].offset], "truncated")
	content := safetensors(1, 300_000)
	mustFail(t, streamOf(content[:len(content)-2]), "truncated")
	mustFail(t, streamOf(content[:20]), "truncated")
	mustFail(t, streamOf(content[:3]), "truncated")
}

func TestDamaged(t *testing.T) {
	content := safetensors(2, 300_000)
	for name, packed := range map[string][]byte{"ours": read(t, packedFile(t, content)), "streamed": streamOf(content)} {
		accepted := 0
		for i := 0; i < len(packed); i += 1 + i/20 {
			broken := bytes.Clone(packed)
			broken[i] ^= 0x10
			path := write(t, "broken.safetensors.zst", broken)
			got, err := unpack(t, path)
			switch {
			case err == nil && !bytes.Equal(got, content):
				t.Errorf("%s: a flipped bit in byte %d goes unnoticed", name, i)
			case err == nil:
				accepted++ // a bit without a meaning
			case errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), path):
				t.Errorf("%s, byte %d: %s: %v; want a ValueError that names the file", name, i, errs.Kind(err), err)
			}
		}
		if accepted > 2 {
			t.Errorf("%s: %d flipped bits had no effect", name, accepted)
		}
	}
	packed := read(t, packedFile(t, content))
	packed[len(packed)-1] ^= 1
	mustFail(t, packed, "checksum")
	mustFail(t, append(read(t, packedFile(t, content)), "more"...), "no zstd frame at byte")
}

func TestForeign(t *testing.T) {
	content := safetensors(1, 1000)
	mustFail(t, []byte("a text of some length"), "not compressed with zstd")
	mustFail(t, content, "looks like a plain safetensors file")
	mustFail(t, frameOf([]byte("a text of some length")), "no safetensors file")
	mustFail(t, frameOf([]byte("short")), "truncated")
	mustFail(t, frameOf(append(bytes.Clone(content), 0)), "accounts for")
	mustFail(t, streamOf(append(safetensors(1, 200_000), 0)), "holds more than")
	mustFail(t, frameOf(withHeader(map[string]any{"a": 1}, nil)), "tensor a")
	mustFail(t, []byte{0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0}, "empty") // a skippable frame alone
	for path, kind := range map[string]string{
		filepath.Join(t.TempDir(), "missing.safetensors.zst"): errs.KindNotFound, t.TempDir(): errs.KindOS, os.DevNull: errs.KindOS,
	} {
		if _, err := unpack(t, path); errs.Kind(err) != kind || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %s: %v; want %s", path, errs.Kind(err), err, kind)
		}
	}
}

func TestMeasurePlain(t *testing.T) {
	content := safetensors(2, 1000)
	sizes, err := MeasurePlain(write(t, "a.safetensors", content))
	if want := (Sizes{int64(len(content)), int64(len(content))}); err != nil || sizes != want {
		t.Errorf("%v, %v; want %v", sizes, err, want)
	}
	for words, content := range map[string][]byte{
		"compressed with zstd": frameOf(content), "truncated": content[:len(content)-1], "empty": nil, "no safetensors file": []byte("a text of some length"),
	} {
		path := write(t, "b.safetensors", content)
		if _, err := MeasurePlain(path); errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v; want a ValueError with %q", errs.Kind(err), err, words)
		}
	}
}

// A file that unpacks to far more than it has is refused by what it says of
// itself, and one that lies is stopped where the lie shows.
func TestBombs(t *testing.T) {
	const size = 1 << 36
	header := map[string]any{"a": map[string]any{"dtype": "U8", "shape": []int{1 << 18, 1 << 18}, "data_offsets": []int{0, size}}}
	begin := withHeader(header, nil)
	honest := frameOf(begin)
	zeros := frameOf(make([]byte, 1<<26))
	for range size / (1 << 26) {
		honest = append(honest, zeros...)
	}
	path := write(t, "bomb.safetensors.zst", honest)
	sizes, err := Measure(path)
	if err != nil || sizes.Content != int64(size+len(begin)) {
		t.Fatalf("Measure: %v, %v", sizes, err)
	}
	if _, err := unpackLimit(t, path, 1<<30); errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), "would unpack to 68719476") {
		t.Errorf("64 GiB: %v", err)
	}
	mustFail(t, append(streamOf(begin), zeros...), "truncated") // the header's claim has a limit too
	if _, err := unpackLimit(t, write(t, "b.zst", append(streamOf(begin), zeros...)), 1<<30); err == nil || !strings.Contains(err.Error(), "would unpack") {
		t.Errorf("64 GiB of no stated size: %v", err)
	}
	small := withHeader(map[string]any{}, nil)
	mustFail(t, append(streamOf(small), zeros...), "holds more than")
	lying := frameOf(safetensors(1, 100_000), zstd.WithSingleSegment(true)) // magic, descriptor, size of four bytes
	binary.LittleEndian.PutUint32(lying[5:], binary.LittleEndian.Uint32(lying[5:])-2)
	mustFail(t, lying, "")
}

func TestReplaceKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b.safetensors.zst")
	for path, content := range map[string][]byte{from: safetensors(6, 900_000), to: []byte("the old file")} {
		if err := os.WriteFile(path, content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Pack(ctx, from, to, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) || string(read(t, to)) != "the old file" {
		t.Errorf("cancelled: %v", err)
	}
	link := filepath.Join(dir, "link.zst")
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(context.Background(), from, link, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(to)
	if err != nil || stat.Mode().Perm() != 0o640 || stat.Size() < 1<<20 {
		t.Errorf("the file behind the link: %v, %v; want the old permissions and a new content", stat, err)
	}
	if stat, err := os.Lstat(link); err != nil || stat.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", stat, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the folder holds %v, %v; want three files", entries, err)
	}
	for path, kind := range map[string]string{
		filepath.Join(dir, "none", "c.zst"): errs.KindNotFound, dir: errs.KindOS, os.DevNull: errs.KindOS,
	} {
		if _, err := Pack(context.Background(), from, path, func(int64) {}); errs.Kind(err) != kind || !strings.Contains(err.Error(), path) {
			t.Errorf("packing into %s: %s: %v; want %s", path, errs.Kind(err), err, kind)
		}
	}
	if _, err := Pack(context.Background(), filepath.Join(dir, "none"), to, func(int64) {}); errs.Kind(err) != errs.KindNotFound {
		t.Errorf("packing a missing file: %v", err)
	}
}

func TestUnpackLeavesAnExistingFileAlone(t *testing.T) {
	to := write(t, "there", []byte("mine"))
	_, err := Unpack(context.Background(), packedFile(t, safetensors(1, 10)), to, math.MaxInt64, func(int64) {})
	if errs.Kind(err) != errs.KindOS || string(read(t, to)) != "mine" {
		t.Errorf("%v", err)
	}
}

func TestJob(t *testing.T) {
	content := safetensors(5, 900_000)
	from := write(t, "a.safetensors", content)
	job := StartPack(from, from+".zst")
	sizes := finish(t, job)
	if done, total := job.Progress(); done != int64(len(content)) || total != done || sizes.Content != done {
		t.Errorf("packed: %d of %d, %v", done, total, sizes)
	}
	job = StartUnpack(from+".zst", from+".back", math.MaxInt64)
	finish(t, job)
	if done, total := job.Progress(); done != int64(len(content)) || total != done || !bytes.Equal(read(t, from+".back"), content) {
		t.Errorf("unpacked: %d of %d", done, total)
	}
	job.Cancel() // after its end it does nothing

	job = StartUnpack(from+".zst", from+".again", math.MaxInt64)
	job.Cancel()
	_, ended, err := job.Wait(0)
	_, statErr := os.Stat(from + ".again")
	if !ended || err == nil == errors.Is(statErr, fs.ErrNotExist) {
		t.Errorf("cancelled: ended %v, %v; its file: %v", ended, err, statErr)
	}
	if _, ended, err := StartPack(from+".none", from).Wait(time.Minute); !ended || errs.Kind(err) != errs.KindNotFound {
		t.Errorf("a missing file: ended %v, %v", ended, err)
	}
}

func finish(t *testing.T, job *Job) Sizes {
	t.Helper()
	sizes, ended, err := job.Wait(time.Minute)
	if !ended || err != nil {
		t.Fatalf("ended %v, %v", ended, err)
	}
	return sizes
}
