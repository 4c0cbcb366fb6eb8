;; A task whose memory is 3 GiB from the start.
(component
  (import "weft:train/types@0.1.0" (instance $types
    (type $request (record (field "content-type" string) (field "body" (list u8))))
    (export "request" (type (eq $request)))
    (type $response (record (field "content-type" string) (field "body" (list u8))))
    (export "response" (type (eq $response)))
    (type $error (variant
      (case "bad-input" string) (case "bad-shape" string) (case "quota" string)
      (case "out-of-device-memory" string) (case "cancelled") (case "device-lost" string)
      (case "not-found" string) (case "conflict" string) (case "other" string)))
    (export "error" (type (eq $error)))))
  (alias export $types "request" (type $request))
  (alias export $types "response" (type $response))
  (alias export $types "error" (type $error))
  (core module $code
    (memory (export "memory") 49152)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $start i32)
      (local.set $start (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $free (i32.add (local.get $start) (local.get $size)))
      (block $fits
        (loop $grow
          (br_if $fits (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
          (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        unreachable)
      (local.get $start))
    ;; ok(response): the case, then pointer and length of content-type and of body.
    (data (i32.const 16) "\00\00\00\00\40\00\00\00\0a\00\00\00\4a\00\00\00\02\00\00\00")
    (data (i32.const 64) "text/plainok")
    (func (export "handle") (param $type i32) (param $type-length i32) (param $body i32) (param $length i32) (result i32)
      (i32.const 16))
  )
  (core instance $task (instantiate $code))
  (alias core export $task "memory" (core memory $bytes))
  (alias core export $task "realloc" (core func $realloc))
  (func $handle (param "request" $request) (result (result $response (error $error)))
    (canon lift (core func $task "handle") (memory $bytes) (realloc $realloc)))
  (export "handle" (func $handle)))
