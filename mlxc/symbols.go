package mlxc

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// function is one C function: its address (0 where the library lacks it), its C name, and that without the library's
// prefix for error texts.
type function struct {
	addr   uintptr
	symbol string
	name   string
	mixed  mixedFunc // for functions with floats among their arguments, which SyscallN cannot call
}

// symbols lists every C function that the package calls. The fields carry the C names, so that the table is written
// down once; all of them belong to mlx-c 0.6.0. Tags mark those with floats among their arguments, and those without
// which nothing works: Load refuses a library that lacks one of these, any other is missed when it is called.
type symbols struct {
	mlx_set_error_handler function `load:"required"`

	mlx_version, mlx_string_data, mlx_string_free function

	mlx_array_free, mlx_array_new_data, mlx_array_set, mlx_array_size, mlx_array_nbytes, mlx_array_ndim,
	mlx_array_shape, mlx_array_strides, mlx_array_dim, mlx_array_dtype, mlx_array_eval, mlx_array_data_uint8,
	_mlx_array_is_row_contiguous, mlx_vector_array_new_data, mlx_vector_array_set_data, mlx_vector_array_free,
	mlx_vector_array_size, mlx_vector_array_get, mlx_device_new_type, mlx_device_free, mlx_stream_new_device,
	mlx_stream_free, mlx_eval, mlx_async_eval function `load:"required"`

	mlx_vector_string_new_data, mlx_vector_string_free, mlx_vector_string_size, mlx_vector_string_get function

	mlx_map_string_to_array_new, mlx_map_string_to_array_free, mlx_map_string_to_array_insert,
	mlx_map_string_to_array_iterator_new, mlx_map_string_to_array_iterator_free,
	mlx_map_string_to_array_iterator_next, mlx_map_string_to_string_new, mlx_map_string_to_string_free,
	mlx_map_string_to_string_insert, mlx_map_string_to_string_iterator_new, mlx_map_string_to_string_iterator_free,
	mlx_map_string_to_string_iterator_next, mlx_load_safetensors, mlx_save_safetensors function

	mlx_device_get_index, mlx_device_get_type, mlx_get_default_device, mlx_set_default_device,
	mlx_device_is_available, mlx_metal_is_available, mlx_cuda_is_available, mlx_device_info_free,
	mlx_device_info_get, mlx_device_info_get_keys, mlx_device_info_get_string, mlx_device_info_get_size function

	mlx_get_default_stream, mlx_set_default_stream, mlx_stream_get_device, mlx_synchronize function

	mlx_clear_cache, mlx_get_active_memory, mlx_get_cache_memory, mlx_get_peak_memory, mlx_reset_peak_memory,
	mlx_set_wired_limit function

	mlx_closure_new_func_payload, mlx_closure_free, mlx_closure_apply, mlx_compile, mlx_enable_compile,
	mlx_disable_compile function

	mlx_abs, mlx_ceil, mlx_copy, mlx_exp, mlx_floor, mlx_isinf, mlx_isnan, mlx_log, mlx_log1p, mlx_negative,
	mlx_sigmoid, mlx_sin, mlx_sqrt, mlx_square, mlx_tanh, mlx_astype, mlx_view function

	mlx_add, mlx_divide, mlx_equal, mlx_floor_divide, mlx_greater, mlx_greater_equal, mlx_less, mlx_less_equal,
	mlx_logaddexp, mlx_logical_and, mlx_maximum, mlx_minimum, mlx_multiply, mlx_power, mlx_remainder, mlx_subtract,
	mlx_clip, mlx_where function

	mlx_argmax_axis, mlx_logsumexp_axis, mlx_max_axis, mlx_min_axis, mlx_sum_axis, mlx_softmax_axis,
	mlx_cumsum function

	mlx_zeros, mlx_ones, mlx_full, mlx_contiguous, mlx_reshape, mlx_broadcast_to, mlx_flatten, mlx_unflatten,
	mlx_transpose, mlx_transpose_axes, mlx_swapaxes, mlx_moveaxis, mlx_expand_dims_axes, mlx_squeeze,
	mlx_squeeze_axes, mlx_concatenate_axis, mlx_stack_axis, mlx_split, mlx_split_sections, mlx_repeat_axis,
	mlx_pad function

	mlx_slice, mlx_slice_update, mlx_take_axis, mlx_take_along_axis, mlx_put_along_axis, mlx_scatter_add_axis,
	mlx_sort_axis, mlx_argsort_axis, mlx_argpartition_axis, mlx_topk_axis function

	mlx_matmul, mlx_gather_mm, mlx_quantize, mlx_dequantize, mlx_quantized_matmul, mlx_gather_qmm,
	mlx_conv1d function

	mlx_arange, mlx_addmm, mlx_fast_rms_norm, mlx_fast_rope, mlx_fast_rope_dynamic,
	mlx_fast_scaled_dot_product_attention function `args:"floats"`

	metal kernelSymbols `prefix:"mlx_fast_metal_kernel"`
	cuda  kernelSymbols `prefix:"mlx_fast_cuda_kernel"`
}

// kernelSymbols are the functions of one kind of custom kernel; the kind's prefix precedes each name.
type kernelSymbols struct {
	_new, _free, _apply, _config_new, _config_free, _config_add_output_arg, _config_set_grid,
	_config_set_thread_group, _config_set_verbose, _config_add_template_arg_dtype,
	_config_add_template_arg_int, _config_add_template_arg_bool function

	_config_set_init_value function `args:"floats"`
}

// each calls visit with every function of the table, its full C name and its tag.
func (s *symbols) each(visit func(name string, tag reflect.StructTag, f *function)) {
	eachFunction(reflect.TypeFor[symbols](), unsafe.Pointer(s), "", visit)
}

func eachFunction(t reflect.Type, base unsafe.Pointer, prefix string, visit func(string, reflect.StructTag, *function)) {
	for i := range t.NumField() {
		field := t.Field(i)
		at := unsafe.Add(base, field.Offset)
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[function]() {
			eachFunction(field.Type, at, field.Tag.Get("prefix"), visit)
			continue
		}
		visit(prefix+field.Name, field.Tag, (*function)(at))
	}
}

// resolve looks up every function; lookup returns zero for a missing one. It fails if a required one is missing.
func (s *symbols) resolve(lookup func(name string) uintptr) error {
	var missing []string
	s.each(func(name string, tag reflect.StructTag, f *function) {
		f.symbol, f.name = name, strings.TrimPrefix(strings.TrimPrefix(name, "_"), "mlx_")
		f.addr = lookup(name)
		switch {
		case f.addr == 0 && tag.Get("load") == "required":
			missing = append(missing, name)
		case f.addr != 0 && tag.Get("args") == "floats":
			purego.RegisterFunc(&f.mixed, f.addr)
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("the library lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// missing tells whether the library lacks a function, and leaves the message of a failure then.
func (l *library) missing(f *function) bool {
	if f.addr != 0 {
		return false
	}
	l.messages.put(fmt.Sprintf("%s has no %s: it is another version of mlx-c", l.path, f.symbol))
	return true
}
