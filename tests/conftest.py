"""A fixed cast, so that a permission test reads like a sentence."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.cache import caches
from django.db import connection, transaction
from django.test import TransactionTestCase, override_settings
from hypothesis import settings as property_settings

from decisions.models import Account, Route, Service
from loadtests.evidence import bucket as evidence_bucket
from loadtests.evidence.bucket import Address
from tests.support import buckets

# How long an example takes says nothing on a machine that others use too.
property_settings.register_profile("untimed", deadline=None)
property_settings.load_profile("untimed")

PASSWORD = "correct horse battery staple"
WRITTEN_ONCE = ("decisions_event", "decisions_signingkey", "decisions_checkpoint")
# What asks no database is the same on every one. Boots and workers of tests/workers may reach one by themselves.
ASKED_APART = ("tests/loadtests/", "tests/benchmarks/", "tests/decisions/")
# Evidence is synced to the disk at every write, which takes a third of the time of tests where the disk is a real one.
MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 << 30  # noqa: S108
DATABASES = {"db", "transactional_db", "live_server"}
SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def pytest_configure() -> None:
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before the markers choose."""
    for item in items:
        if item.nodeid.startswith(ASKED_APART) and not asks_database(item):
            item.add_marker("alone")


def asks_database(item: pytest.Item) -> bool:
    services = (item.get_closest_marker(name) for name in ("django_db", "services"))
    return any(services) or bool(DATABASES & set(getattr(item, "fixturenames", ())))


@pytest.fixture(autouse=True)
def var_of_its_own(settings: Any, tmp_path: Path) -> None:
    """No test writes into the installation's own directories."""
    settings.OWN_SIGNING_KEY_FILE, settings.SIGNING_KEY_FILE = tmp_path / "signing-key.pem", None
    settings.EVIDENCE_DIR, settings.EVIDENCE_URL = tmp_path / "evidence", ""
    settings.EVIDENCE_COPIES_DIR = tmp_path / "evidence-copies"
    settings.RUNS_DIR = tmp_path / "runs"
    settings.UPLOADS_DIR = settings.FILE_UPLOAD_TEMP_DIR = tmp_path / "uploads"


@pytest.fixture(scope="module")
def module_evidence(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where the evidence of a whole module lies; what is built beside it is rolled back once the module is over."""
    evidence = tmp_path_factory.mktemp("module") / "evidence"
    with django_db_blocker.unblock(), transaction.atomic(), override_settings(EVIDENCE_DIR=evidence):
        yield evidence
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def nothing_tried_before() -> None:
    """Failed tries are counted by address, and all tests come from one."""
    for one in caches.all():
        one.clear()


@pytest.fixture(autouse=True)
def short_self_test(settings: Any) -> None:
    settings.SELF_TEST_S = 0.2


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server."""
    with buckets.s3_server(tmp_path_factory.mktemp("s3") / "log") as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Address:
    """A new bucket on it, and the keys in the environment. Once its server is back, a test needn't wait."""
    monkeypatch.setattr(evidence_bucket, "GIVEN_UP_S", 0.0)
    for name, value in buckets.KEYS.items():
        monkeypatch.setenv(name, value)
    return buckets.new_bucket(s3)


@pytest.fixture
def kept_in_a_bucket(bucket: Address, settings: Any) -> Address:
    """The installation's evidence."""
    settings.EVIDENCE_URL = f"s3://{bucket.bucket}/{bucket.prefix}"
    settings.EVIDENCE_ENDPOINT, settings.EVIDENCE_REGION = bucket.endpoint, bucket.region
    return bucket


@pytest.fixture
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data are not beside this checkout")
    return SHARED_DATA


@pytest.fixture
def account(db: None) -> Callable[..., Account]:
    def create(username: str, *groups: str, **fields: Any) -> Account:
        person = Account.objects.create_user(username, password=PASSWORD, **fields)
        person.groups.set([Group.objects.get_or_create(name=name)[0] for name in groups])
        return person

    return create


@pytest.fixture
def engineer(account: Callable[..., Account]) -> Account:
    return account("engineer", "engineer")


@pytest.fixture
def owner(account: Callable[..., Account]) -> Account:
    return account("owner", "owner")


@pytest.fixture
def second_owner(account: Callable[..., Account]) -> Account:
    return account("second_owner", "owner")


@pytest.fixture
def auditor(account: Callable[..., Account]) -> Account:
    return account("auditor", "auditor")


@pytest.fixture
def superuser(account: Callable[..., Account]) -> Account:
    return account("superuser", "owner", is_superuser=True)


@pytest.fixture
def stranger(account: Callable[..., Account]) -> Account:
    return account("stranger")


@pytest.fixture
def service(owner: Account, second_owner: Account, superuser: Account) -> Service:
    service = Service.objects.create(
        slug="support-assistant",
        name="Support assistant",
        purpose="Answers customers' questions",
        target="SmolLM2-135M-Instruct",
        pool="cpu",
    )
    service.owners.set([owner, second_owner, superuser])
    return service


@pytest.fixture
def route(service: Service) -> Route:
    return Route.objects.create(service=service, slug="chat", name="Chat", purpose="Interactive answers")


@pytest.fixture(autouse=True, scope="session")
def flush_past_the_ledger() -> Iterator[None]:
    """Transactional tests empty every table afterwards; the ledger's triggers would refuse, so they step aside then."""
    case: Any = TransactionTestCase
    original = case._fixture_teardown

    def teardown(self: TransactionTestCase) -> None:
        with without_triggers():
            original(self)

    case._fixture_teardown = teardown
    yield
    case._fixture_teardown = original


@contextmanager
def without_triggers() -> Iterator[None]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for table in WRITTEN_ONCE:
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            yield
            for table in WRITTEN_ONCE:
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
            return
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'ledger%'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {name}")
        yield
        for _, sql in triggers:
            cursor.execute(sql)
