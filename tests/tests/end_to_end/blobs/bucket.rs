//! A bucket on its bad days, and one that several nodes might use.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use weft::blob::{BlobError, BlobPlace, Blobs, Credentials, Patience, S3};
use weft::digest::Digest;
use weft_tests::s3::{KEY_ID, Mood, SECRET, Server};

/// Of three parts.
const LARGE: usize = (17 << 20) + 5;
const IMPATIENT: Patience =
    Patience { request: Duration::from_millis(300), retries: 1, altogether: Duration::from_secs(5) };

async fn start(s3: &S3, owner: &str) -> Result<Arc<Blobs>, BlobError> {
    Blobs::start(&BlobPlace::S3(s3.clone()), "unused".into(), "unused".into(), owner).await
}

/// The error, which must name no secret.
fn refused<T>(result: Result<T, BlobError>) -> Result<String> {
    let Err(error) = result else { anyhow::bail!("it was not refused") };
    let text = format!("{error} {error:?}");
    ensure!(!text.contains(SECRET) && !text.contains(KEY_ID), "{text}");
    Ok(error.to_string())
}

macro_rules! tests {
    ($($test:ident,)+) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() -> Result<()> {
            run::$test(Server::start()?).await
        }
    )+ };
}

tests! {
    a_bucket_that_works_is_accepted_and_left_clean,
    a_wrong_secret_is_said_to_be_wrong,
    an_unknown_key_is_said_to_be_unknown,
    a_bucket_that_ignores_conditions_is_refused,
    a_server_that_never_answers_is_given_up,
    a_server_that_is_gone_is_said_to_be,
    a_server_without_tls_is_no_https_server,
    a_server_that_is_busy_is_asked_again,
    an_answer_that_gets_lost_does_no_harm,
    what_is_there_is_not_sent_again,
    nothing_is_seen_of_an_upload_that_fails_between_parts,
    nothing_is_seen_of_an_upload_that_is_given_up_between_parts,
    a_failed_upload_can_be_repeated,
    what_is_written_is_there_whole_or_not_at_all,
    a_sweep_leaves_what_is_younger_than_the_grace,
    a_second_node_is_refused_and_the_first_is_not,
    two_prefixes_of_a_bucket_know_nothing_of_each_other,
}

mod run {
    use super::*;

    pub async fn a_bucket_that_works_is_accepted_and_left_clean(server: Server) -> Result<()> {
        start(&server.place("p"), "me").await?;
        ensure!(server.keys()? == ["p/owner"]);
        Ok(())
    }

    pub async fn a_wrong_secret_is_said_to_be_wrong(server: Server) -> Result<()> {
        let credentials = Some(Credentials { key_id: KEY_ID.to_owned(), secret: format!("{SECRET}!") });
        let error = refused(start(&S3 { credentials, ..server.place("p") }, "me").await)?;
        ensure!(error.contains("SignatureDoesNotMatch") && error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
        Ok(())
    }

    pub async fn an_unknown_key_is_said_to_be_unknown(server: Server) -> Result<()> {
        let credentials = Some(Credentials { key_id: "AKIAOTHER".to_owned(), secret: SECRET.to_owned() });
        let error = refused(start(&S3 { credentials, ..server.place("p") }, "me").await)?;
        ensure!(error.contains("s3://bucket/p") && !error.contains("AKIAOTHER"), "{error}");
        Ok(())
    }

    pub async fn a_bucket_that_ignores_conditions_is_refused(server: Server) -> Result<()> {
        server.set_mood(Mood::IgnoresConditions);
        let error = refused(start(&server.place("p"), "me").await)?;
        ensure!(error.contains("If-None-Match"), "{error}");
        Ok(())
    }

    pub async fn a_server_that_never_answers_is_given_up(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&S3 { patience: IMPATIENT, ..server.place("p") })?;
        server.set_mood(Mood::Silent);
        let error = refused(blobs.publish_bytes(Bytes::from_static(b"weft")).await)?;
        ensure!(error.contains("timed out"), "{error}");
        Ok(())
    }

    pub async fn a_server_that_is_gone_is_said_to_be(mut server: Server) -> Result<()> {
        let blobs = Blobs::s3(&S3 { patience: IMPATIENT, ..server.place("p") })?;
        let digest = blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
        server.stop();
        let staged = tempfile::NamedTempFile::new()?;
        refused(blobs.publish(staged.path(), &Digest::of(b"")).await)?;
        ensure!(staged.path().exists(), "what could not be published is gone");
        refused(blobs.read(&digest, 0..4).await)?;
        refused(blobs.list().await)?;
        let error = refused(blobs.open(&digest).await)?;
        ensure!(error.contains("s3://bucket/p"), "{error}");
        Ok(())
    }

    pub async fn a_server_without_tls_is_no_https_server(server: Server) -> Result<()> {
        let endpoint = Some(server.endpoint().replace("http://", "https://"));
        refused(start(&S3 { endpoint, patience: IMPATIENT, ..server.place("p") }, "me").await)?;
        Ok(())
    }

    pub async fn a_server_that_is_busy_is_asked_again(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        server.set_mood(Mood::Busy(2));
        let digest = blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
        ensure!(blobs.read(&digest, 0..4).await? == "weft");
        Ok(())
    }

    pub async fn an_answer_that_gets_lost_does_no_harm(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        // The look, and then the put.
        server.set_mood(Mood::Mute(2));
        let digest = blobs.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
        ensure!(blobs.list().await? == [digest]);
        Ok(())
    }

    pub async fn what_is_there_is_not_sent_again(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        for _ in 0..3 {
            let _small = blobs.publish_bytes(Bytes::from_static(b"weft")).await?;
            let _large = blobs.publish_bytes(vec![7; LARGE].into()).await?;
        }
        ensure!(server.requests("PUT", "") == 1 + 3, "{} puts", server.requests("PUT", ""));
        Ok(())
    }

    pub async fn nothing_is_seen_of_an_upload_that_fails_between_parts(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        server.set_mood(Mood::FullAfterParts(1));
        let error = refused(blobs.publish_bytes(vec![7; LARGE].into()).await)?;
        ensure!(error.contains("507"), "{error}");
        ensure!(blobs.list().await?.is_empty() && server.keys()?.is_empty());
        Ok(())
    }

    pub async fn nothing_is_seen_of_an_upload_that_is_given_up_between_parts(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        let publish = tokio::spawn({
            let blobs = blobs.clone();
            async move { blobs.publish_bytes(vec![7; LARGE].into()).await.map(drop) }
        });
        while server.requests("PUT", "partNumber=") == 0 && !publish.is_finished() {
            tokio::task::yield_now().await;
        }
        server.set_mood(Mood::Silent);
        publish.abort();
        publish.await.ok();
        server.set_mood(Mood::Fine);
        ensure!(blobs.list().await?.is_empty() && server.keys()?.is_empty());
        Ok(())
    }

    pub async fn a_failed_upload_can_be_repeated(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        server.set_mood(Mood::FullAfterParts(1));
        refused(blobs.publish_bytes(vec![7; LARGE].into()).await)?;
        server.set_mood(Mood::Fine);
        let digest = blobs.publish_bytes(vec![7; LARGE].into()).await?.digest();
        ensure!(blobs.size(&digest).await? == LARGE as u64);
        Ok(())
    }

    pub async fn what_is_written_is_there_whole_or_not_at_all(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        let content = vec![7; LARGE];
        let write = |to: &mut dyn std::io::Write| to.write_all(&content);
        let (least, _) = blobs.room_to_write(LARGE as u64);
        server.set_mood(Mood::FullAfterParts(1));
        refused(blobs.publish_written(write, least).await)?;
        ensure!(blobs.list().await?.is_empty() && server.keys()?.is_empty());
        // One after another, with room for one.
        let parts = |number: u32| server.requests("PUT", &format!("partNumber={number}"));
        ensure!(parts(1) == 1 && parts(3) == 0, "{} and {}", parts(1), parts(3));
        server.set_mood(Mood::Fine);
        let (pinned, size) = blobs.publish_written(write, least).await?;
        ensure!(size == LARGE as u64 && pinned.digest() == Digest::of(&content) && parts(3) == 1);
        // What is there is not sent again.
        let again = blobs.publish_written(write, least).await?.0;
        ensure!(again.digest() == pinned.digest() && parts(1) == 2, "{}", parts(1));
        Ok(())
    }

    pub async fn a_sweep_leaves_what_is_younger_than_the_grace(server: Server) -> Result<()> {
        let blobs = Blobs::s3(&server.place("p"))?;
        blobs.set_referrers(Vec::new());
        let digest = blobs.publish_bytes(Bytes::from_static(b"another node's")).await?.digest();
        ensure!(blobs.sweep().await? == 0 && blobs.list().await? == [digest]);
        Ok(())
    }

    pub async fn a_second_node_is_refused_and_the_first_is_not(server: Server) -> Result<()> {
        start(&server.place("p"), "first").await?;
        let error = refused(start(&server.place("p"), "second").await)?;
        ensure!(error.contains("another node") && error.contains("p/owner"), "{error}");
        start(&server.place("p"), "first").await?;
        Ok(())
    }

    pub async fn two_prefixes_of_a_bucket_know_nothing_of_each_other(server: Server) -> Result<()> {
        let (one, two) = (start(&server.place("p"), "one").await?, start(&server.place("p/q"), "two").await?);
        one.set_referrers(Vec::new());
        let digest = two.publish_bytes(Bytes::from_static(b"weft")).await?.digest();
        ensure!(one.list().await?.is_empty() && one.sweep().await? == 0);
        ensure!(two.list().await? == [digest]);
        Ok(())
    }
}
