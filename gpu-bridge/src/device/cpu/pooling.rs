//! Windows to one element: maxima and means of images.
