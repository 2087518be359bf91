"""``HadoopFolderStore``: a folder of a file system of Hadoop, by the ``FileContext`` of Spark's JVM.

HDFS has what ``FolderStore`` promises: the name node renames atomically and only onto a free name (``rename`` of
``FileContext`` without OVERWRITE), and it appends only to a file that exists.  A closed file is complete.
Other file systems must be checked one by one (``folder_choice``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from bridge.spark.pipeline.sinks.sink import SinkUnavailableError

_NOT_FOUND = "java.io.FileNotFoundException"
_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


class HadoopFolderStore:
    """``root``: a URI.  ``gateway``: of py4j to Spark's JVM.  ``configuration``: a ``Configuration`` of Hadoop."""

    def __init__(self, root: str, gateway: Any, configuration: Any) -> None:
        self._gateway = gateway
        self._jvm = jvm = gateway.jvm
        self._configuration = configuration
        self._root = jvm.org.apache.hadoop.fs.Path(root)
        with self._errors():
            self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), configuration)

    def uri(self, path: str) -> str:
        return str(self._path(path).toString())

    def create_empty(self, path: str) -> None:
        with self._errors():
            self._open(path, "CREATE", is_parent_made=True).close()

    def fill(self, path: str, data: bytes) -> None:
        with self._errors():
            assert self._context.getFileStatus(self._path(path)).getLen() == 0, f"{path} is filled once"
            output = self._open(path, "APPEND")
            try:
                output.write(data)
                output.hsync()
            finally:
                output.close()

    def publish(self, source: str, target: str) -> None:
        self.move(source, target)

    def move(self, source: str, target: str) -> None:
        place = self._path(target)
        with self._errors():
            if not self._context.util().exists(place.getParent()):
                permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission.getDirDefault()
                self._context.mkdir(place.getParent(), permission, True)
            rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
            self._context.rename(self._path(source), place, self._array(rename, [rename.NONE]))

    def read(self, path: str) -> bytes:
        with self._errors():
            source = self._context.open(self._path(path))
            try:
                return bytes(source.readAllBytes())
            finally:
                source.close()

    def names(self, folder: str) -> list[str]:
        try:
            with self._errors():
                return sorted(each.getPath().getName() for each in self._statuses(folder))
        except FileNotFoundError:
            return []

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with self._errors():
            for each in self._statuses(folder):
                name = each.getPath().getName()
                if name[0] in "_.":
                    continue
                if each.isDirectory():
                    found += [(f"{name}/{path}", size) for path, size in self.data_files(f"{folder}/{name}")]
                else:
                    found.append((name, int(each.getLen())))
        return sorted(found)

    def parquet_rows(self, path: str) -> int:
        hadoop = self._jvm.org.apache.parquet.hadoop
        with self._errors():
            source = hadoop.util.HadoopInputFile.fromPath(self._path(path), self._configuration)
            reader = hadoop.ParquetFileReader.open(source)
            try:
                return int(reader.getRecordCount())
            finally:
                reader.close()

    def sync(self, paths: list[str]) -> None:
        """Nothing: the data nodes have what was written when a file is closed."""

    def remove(self, path: str) -> None:
        with self._errors():
            self._context.delete(self._path(path), False)

    def remove_tree(self, folder: str) -> bool:
        with self._errors():
            self._context.delete(self._path(folder), True)
            return not self._context.util().exists(self._path(folder))

    def access_problem(self) -> str | None:
        """Whether the name node answers.  Permissions are checked when the folder is created."""
        try:
            with self._errors():
                self._context.util().exists(self._root)
        except SinkUnavailableError as error:
            return str(error)
        return None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root

    def _statuses(self, folder: str) -> Iterator[Any]:
        found = self._context.listStatus(self._path(folder))
        while found.hasNext():
            yield found.next()

    def _open(self, path: str, flag: str, is_parent_made: bool = False) -> Any:
        flags = self._jvm.java.util.EnumSet.of(getattr(self._jvm.org.apache.hadoop.fs.CreateFlag, flag))
        options = getattr(self._jvm.org.apache.hadoop.fs, "Options$CreateOpts")
        chosen = [options.createParent()] if is_parent_made else []
        return self._context.create(self._path(path), flags, self._array(options, chosen))

    def _array(self, type_: Any, values: list[Any]) -> Any:
        """The array of a method with a variable number of arguments."""
        array = self._gateway.new_array(type_, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of Java as those that ``FolderStore`` names."""
        try:
            yield
        except Py4JJavaError as error:
            java = error.java_exception
            name, text = str(java.getClass().getName()), str(java.getMessage())
            if name == _NOT_FOUND:
                raise FileNotFoundError(text) from error
            if name == _EXISTS:
                raise FileExistsError(text) from error
            raise SinkUnavailableError(
                f"{self._root.toString()}: {name}: {text.partition(chr(10))[0]}; the operator must repair the access "
                "to this folder"
            ) from error
