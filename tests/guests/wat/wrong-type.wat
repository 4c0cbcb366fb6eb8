;; A component whose `handle` takes and gives a number.
(component
  (core module $code
    (func (export "handle") (param i32) (result i32)
      (local.get 0)))
  (core instance $task (instantiate $code))
  (func $handle (param "request" u32) (result u32)
    (canon lift (core func $task "handle")))
  (export "handle" (func $handle)))
